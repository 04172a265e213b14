"""How fast the archive job is, from the store to a published lake."""
