"""The commands, one file for each family. Importing this fills the table."""

from penstock.servers.resp.commands import (
    connection,
    introspection,
    seed,
    seed_looking,
    seed_older,
    transactions,
)

__all__ = ["connection", "introspection", "seed", "seed_looking", "seed_older", "transactions"]
