"""The commands, one file for each family. Importing this fills the table."""

from penstock.servers.resp.commands import (
    connection,
    introspection,
    model_looking,
    model_managing,
    model_messages,
    model_waiting,
    seed,
    seed_looking,
    seed_older,
    stream_groups,
    stream_info,
    stream_pending,
    stream_reading,
    streams,
    transactions,
)

__all__ = [
    "connection",
    "introspection",
    "model_looking",
    "model_managing",
    "model_messages",
    "model_waiting",
    "seed",
    "seed_looking",
    "seed_older",
    "stream_groups",
    "stream_info",
    "stream_pending",
    "stream_reading",
    "streams",
    "transactions",
]
