"""Servers: the verbs of a store for programs that speak another protocol."""
