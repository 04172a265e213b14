"""The library of functions: Lua files joined in order, with the texts of the domain that they write."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from penstock.domain import reasons
from penstock.domain.errors import SchemaTooNew

NAME = "penstock"
# The version of the functions and of the keys they write. A server may hold functions of one version only.
VERSION = 2
# Files in the order of loading: a file may use the tables that `calls` declares in any order.
_FILES = (
    "calls", "decisions", "queues", "log", "audit", "held", "leases", "outcomes", "messages", "notices", "joins",
    "batches", "shards", "cursors", "deliveries", "settlements", "dead_letters", "consumers", "retention", "removal",
    "inspection", "counts", "listing", "windows", "sink", "health", "store", "registration",
)  # fmt: skip


@cache
def source() -> str:
    """The whole library, as `FUNCTION LOAD` takes it."""
    folder = files("penstock.engines.redis").joinpath("functions")
    first, *others = [folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in _FILES]
    # Each file is a block of its own: a chunk of Lua may have 200 local variables.
    blocks = [f"do\n{text}end" for text in others]
    return "\n".join([f"#!lua name={NAME}", f"local VERSION = {VERSION}", _reasons(), first, *blocks])


def too_new(store: str, version: int) -> SchemaTooNew:
    return SchemaTooNew(f"{store} has functions of version {version}: this Penstock knows version {VERSION}")


def _reasons() -> str:
    texts = {event.value: text for event, text in reasons.OF_EVENT.items()}
    texts.update(
        claimed_by_force=reasons.CLAIMED_BY_FORCE,
        passed_by_seek=reasons.PASSED_BY_SEEK,
        released_behind=reasons.RELEASED_BEHIND,
        taken_over=reasons.TAKEN_OVER,
        consumer_gone=reasons.CONSUMER_GONE,
        redriven=reasons.REDRIVEN,
        trimmed_unread=reasons.TRIMMED_UNREAD,
    )
    rows = ", ".join(f"{name} = {_quoted(text)}" for name, text in texts.items())
    return f"local REASONS = {{ {rows} }}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
