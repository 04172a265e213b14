"""Workers, which receive messages and call handlers, and the periodic sweep of a store."""
