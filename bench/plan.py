"""Sizes of the measurement, and the location of the stores."""

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
        """Number of rounds in which contenders take turns, so that noise affects all of them."""
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
    """Distinct texts of one size, which cannot be shared or compressed, and which text-only peers accept."""
    return f"{number:020d}".encode() + b"x" * (PAYLOAD_BYTES - 20)
