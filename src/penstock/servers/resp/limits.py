"""How much one client may ask for. Everything a stranger can send has a bound, and the bounds are lower before AUTH."""

from __future__ import annotations

import msgspec

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20


class Limits(msgspec.Struct, frozen=True):
    """0 means no limit for counts of clients and for seconds."""

    arguments: int = 65_536
    bulk_bytes: int = 16 * MEBIBYTE + 64 * KIBIBYTE
    request_bytes: int = 32 * MEBIBYTE
    inline_bytes: int = 64 * KIBIBYTE
    # Redis' own bounds for those who have not said who they are.
    stranger_arguments: int = 10
    stranger_bulk_bytes: int = 16 * KIBIBYTE
    stranger_output_bytes: int = 64 * KIBIBYTE
    output_bytes: int = 64 * MEBIBYTE
    # Commands of one client that may be under way; those after them wait, and reading waits with them.
    pipelined: int = 4_096
    clients: int = 10_000
    clients_per_address: int = 0
    clients_per_user: int = 0
    idle_seconds: float = 0
    handshake_seconds: float = 10
    # A command that was begun must be there whole by then, and a reply taken.
    request_seconds: float = 60
    # QADD with NOBLOCK: sends that were answered before they were stored.
    background_sends: int = 1_280
    failed_logins_per_second: int = 10
