"""The running side: workers that call handlers, and the upkeep of a store while something runs."""
