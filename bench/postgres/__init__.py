"""Penstock on PostgreSQL beside its peers: one server, the same durability, in one run."""
