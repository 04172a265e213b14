"""The shared server, the durations, and the contenders."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.postgres.contenders import CONTENDERS, Contender
from bench.postgres.server import Server


@dataclass
class Field:
    server: Server
    names: Sequence[str]
    seconds: float
    rounds: int
    held_seconds: float
    backlog: int
    is_quick: bool = False
    _urls: dict[str, str] = field(default_factory=dict)

    def contenders(self, batch: int | None = None) -> list[Contender]:
        """Those that take part, and can receive in batches of this size."""
        chosen = [CONTENDERS[name] for name in self.names]
        return [one for one in chosen if batch is None or batch in one.batches]

    def fresh(self, contender: Contender, ending: str = "") -> str:
        """An empty database with the contender's schema; the one without an ending is what `url` gives later."""
        url = self.server.fresh("bench_" + contender.name.replace("-", "_") + ending)
        contender.prepare(url)
        if not ending:
            self._urls[contender.name] = url
        return url

    def url(self, contender: Contender) -> str:
        """The contender's database, as the previous scenario left it."""
        return self._urls.get(contender.name) or self.fresh(contender)


def tell(text: str) -> None:
    """Report progress on stderr, because measuring takes minutes."""
    print(f"  … {text}", file=sys.stderr, flush=True)
