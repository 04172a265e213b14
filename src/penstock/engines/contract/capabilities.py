"""What an engine offers beyond the queue itself."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Facet = Literal["administration", "batches", "inspection", "ledger", "schedules", "sink", "streams", "windows"]
EVERY_FACET: frozenset[Facet] = frozenset(get_args(Facet))


class Capabilities(msgspec.Struct, frozen=True):
    """The facets that an engine implements, and how it behaves where callers may choose."""

    facets: frozenset[Facet] = EVERY_FACET
    receives_lightly: bool = True
    """An empty receive takes no lock that others wait for, so that callers need not check `ready_in` first."""
    rolls_back: bool = True
    """An exception of an operation of `together` undoes the calls that it has made."""
    shares_leases: bool = False
    """`receive_each` costs less than its receives one by one, and `ack_all` is exact also for a part of a lease."""
