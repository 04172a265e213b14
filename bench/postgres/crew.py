"""The processes of one contender on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench import crew
from bench.crew import MOST_WAITING, Crew
from bench.postgres.contenders import Contender


@contextmanager
def at_work(
    contender: Contender, url: str, batch: int, senders: int = 2, takers: int = 2, most_waiting: int = MOST_WAITING
) -> Iterator[Crew]:
    _settle_down(url)
    with crew.at_work(contender.name, contender.command(), url, batch, senders, takers, most_waiting) as working:
        yield working


def _settle_down(url: str) -> None:
    """Write dirty pages of earlier turns, so that all turns start alike."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("checkpoint")
