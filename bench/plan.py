"""How much to measure, and where the stores lie meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAYLOAD_BYTES = 200


@dataclass(frozen=True)
class Plan:
    folder: Path
    seconds: float
    quick: bool = False
    full: bool = False

    @property
    def rounds(self) -> int:
        """Contenders take turns this often, so that a busy moment of the machine hits all of them."""
        return 3 if self.quick else 15

    @property
    def round_seconds(self) -> float:
        return self.seconds / self.rounds

    def as_json(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "rounds": self.rounds, "quick": self.quick, "full": self.full}

    def place(self, name: str) -> Path:
        """A new folder for the files of one contender."""
        path = self.folder / name
        path.mkdir()
        return path


def payload(number: int) -> bytes:
    """Distinct texts of one size: nothing can be shared or compressed away, and peers that only take text can play."""
    return f"{number:020d}".encode() + b"x" * (PAYLOAD_BYTES - 20)
