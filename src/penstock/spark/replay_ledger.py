"""The positions that a replay has sent, kept in the store's ledger permanently.

Positions are stored as ranges, in blocks. A run records what it is going to send before it sends. The sends and the
sink's ledger entry for the run are one transaction, so the next run knows from that entry whether they happened.
Neither a crash nor trimming of the target queue makes a message go twice.

    <replay>/done/<block>/<queue>        ranges that were sent
    <replay>/run/<run>/<block>/<queue>   ranges that a run was going to send
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.engines.contract import Engine

    Positions = Mapping[str, NDArray[numpy.int64]]

KIND = "replay"
SINK = "sink"
BLOCK = 1 << 16


class ReplayLedger:
    """The replay with one name into one queue. Not safe for concurrent runs of the same replay."""

    def __init__(self, engine: Engine, name: str, into: str) -> None:
        self.engine = engine
        self.into = into
        digest = hashlib.sha256(msgspec.json.encode([engine.epoch(), name, into])).hexdigest()[:24]
        self.key = f"replay-{digest}"

    def new(self, chosen: Positions) -> dict[str, NDArray[numpy.int64]]:
        """The chosen messages that were not sent before."""
        done = self._blocks("done")
        found = {}
        for queue, positions in chosen.items():
            left = numpy.unique(positions)
            for block in numpy.unique(left // BLOCK):
                if text := done.get(f"{block}/{queue}"):
                    left = numpy.setdiff1d(left, _positions(text), assume_unique=True)
            if len(left):
                found[queue] = left
        return found

    def begin(self, positions: Positions) -> str:
        """Record what is going to be sent. Returns the batch to send it as."""
        run = uuid4().hex
        puts = {}
        for queue, ones in positions.items():
            for block in numpy.unique(ones // BLOCK):
                puts[f"{self.key}/run/{run}/{block}/{queue}"] = _ranges(ones[ones // BLOCK == block])
        self.engine.record(KIND, puts)
        return run

    def finish(self) -> None:
        """Mark the positions of committed runs as sent, and delete the records of the others."""
        runs: dict[str, dict[str, str]] = {}
        for place, text in self._blocks("run").items():
            run, _, block = place.partition("/")
            runs.setdefault(run, {})[block] = text
        for run, blocks in runs.items():
            entry = f"{self.key}/{run}/{self.into}"
            if entry in self.engine.ledger(SINK, entry):
                self._add(blocks, [f"run/{run}/{block}" for block in blocks])
                self.engine.record(SINK, {}, [entry])
            else:
                self.engine.record(KIND, {}, [f"{self.key}/run/{run}/{block}" for block in blocks])

    def _add(self, blocks: dict[str, str], over: Iterable[str]) -> None:
        done = self._blocks("done")
        puts = {}
        for block, text in blocks.items():
            known = [_positions(one) for one in (text, done.get(block)) if one]
            puts[f"{self.key}/done/{block}"] = _ranges(numpy.unique(numpy.concatenate(known)))
        self.engine.record(KIND, puts, [f"{self.key}/{one}" for one in over])

    def _blocks(self, kind: str) -> dict[str, str]:
        prefix = f"{self.key}/{kind}/"
        return {key.removeprefix(prefix): text for key, text in self.engine.ledger(KIND, prefix).items()}


def _ranges(positions: NDArray[numpy.int64]) -> str:
    """Encode sorted positions as a JSON list of first and last of each range."""
    ends = numpy.flatnonzero(numpy.diff(positions) != 1)
    firsts = positions[numpy.concatenate(([0], ends + 1))]
    lasts = positions[numpy.concatenate((ends, [len(positions) - 1]))]
    return msgspec.json.encode(numpy.column_stack((firsts, lasts)).ravel().tolist()).decode()


def _positions(text: str) -> NDArray[numpy.int64]:
    bounds = msgspec.json.decode(text, type=list[int])
    ranges = [numpy.arange(first, last + 1) for first, last in zip(bounds[::2], bounds[1::2], strict=True)]
    return numpy.concatenate(ranges)
