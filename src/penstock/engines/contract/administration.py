"""Administration: schema, health and repair."""

from __future__ import annotations

from typing import Protocol

from penstock.domain.results import Check, Repair
from penstock.engines.flaws import Choices


class AdministrationContract(Protocol):
    """What an operator does to the store itself."""

    def migrate(self) -> list[str]:
        """Bring the schema to this version and return the names of the steps applied; refuse a newer schema."""

    def doctor(self) -> list[Check]:
        """Check version, durability, integrity, flaws and stalled work, each with advice."""

    def repair(self, dry_run: bool, choices: Choices) -> list[Repair]:
        """Repair the flaws that earlier versions or faults left behind, as far as no decision is needed or `choices`
        makes it; a dry run changes nothing."""
