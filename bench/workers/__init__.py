"""Workers with handlers that do nothing, beside those of others: what a message costs when its work costs nothing."""
