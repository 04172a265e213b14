"""Windows: how the pipeline reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.domain.observations import Part
from penstock.engines.contract import Mark, Table
from penstock.engines.postgres.connection import Database


def horizon(database: Database) -> Mark:
    raise NotImplementedError


def earliest(database: Database, queue: str) -> Mark:
    raise NotImplementedError


def mark_at(database: Database, at: int) -> Mark:
    raise NotImplementedError


def cut(database: Database, queue: str, start: Mark, end: Mark, rows: int | None, size: int | None) -> Mark:
    raise NotImplementedError


def window(database: Database, queue: str, start: Mark, end: Mark, parts: int, table: Table) -> list[Part]:
    raise NotImplementedError


def read(database: Database, part: Part, batch_rows: int, columns: Sequence[str] | None, salt: int) -> Iterator[Any]:
    raise NotImplementedError


def stream_position(database: Database, queue: str, group: str) -> Mark | None:
    raise NotImplementedError


def advance(database: Database, queue: str, group: str, mark: Mark) -> None:
    raise NotImplementedError
