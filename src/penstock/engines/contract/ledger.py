"""The ledger: small facts that the pipeline and the servers keep in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class LedgerContract(Protocol):
    """Entries of a kind, changed together by compare-and-set."""

    def ledger(self, kind: str, prefix: str = "") -> dict[str, str]:
        """The entries of a kind whose keys begin with a prefix, by key; values are JSON."""

    def record(
        self,
        kind: str,
        puts: Mapping[str, str],
        removes: Sequence[str] = (),
        expect: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Put and remove entries of a kind if every expected key has its expected value (None: absent); False, with
        nothing changed, otherwise."""
