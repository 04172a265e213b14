"""Plain tables with the rows of a queue, for Spark's own JDBC source to read and its writer to fill.

The one to read has the columns, types and values that a queue gives, so that both make the same files. The one to fill
has what a message of the sink has, as a hand-made queue would: numbered, stamped with a time, and indexed in the order
of serving. A message is found by its number, as ours is by its position, of which its id is made; both sides keep two
indexes. JDBC writes as Spark has it, and once more by the best of its driver: batches of 10,000 rows, sent as few
statements. It commits each of its two parts on its own, and a task that runs again writes its rows again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

READ_TABLE = "bench_read"
WRITE_TABLE = "bench_written"
# The content type of messages sent as bytes.
CONTENT_TYPE = "application/octet-stream"
# What both sides read: the same columns of the same rows.
COLUMNS = ("position", "id", "created_at", "priority", "content_type", "payload")


@dataclass(frozen=True)
class Peer:
    """How JDBC reaches the database of a store."""

    url: str
    driver: str
    options: dict[str, str]
    # SQLite has one writer: a second task would find the file locked.
    write_partitions: int


def peer_of(url: str) -> Peer:
    if url.startswith("sqlite:///"):
        return Peer(f"jdbc:sqlite:{url.removeprefix('sqlite:///')}", "org.sqlite.JDBC", {}, 1)
    parts = urlsplit(url)
    options = {"user": parts.username or "postgres", "password": parts.password or ""}
    place = f"jdbc:postgresql://{parts.hostname}:{parts.port or 5432}{parts.path}"
    return Peer(place, "org.postgresql.Driver", {name: value for name, value in options.items() if value}, 2)


def fill(url: str, count: int, payload: bytes) -> None:
    """The table that JDBC reads, and an empty one for it to write."""
    if url.startswith("sqlite:///"):
        _fill_sqlite(url.removeprefix("sqlite:///"), count, payload)
    else:
        _fill_postgres(url, count, payload)


def _fill_sqlite(path: str, count: int, payload: bytes) -> None:
    import apsw

    connection = apsw.Connection(path)
    connection.execute(
        f"create table {READ_TABLE} (position integer primary key, id text, created_at integer, priority integer, "
        f"content_type text, payload blob); create table {WRITE_TABLE} (position integer primary key autoincrement, "
        "created_at text default current_timestamp, queue text, priority integer, content_type text, payload blob); "
        f"create index {WRITE_TABLE}_order on {WRITE_TABLE} (queue, priority, position)"
    )
    connection.execute(
        "with recursive number (n) as (select 1 union all select n + 1 from number where n < ?) "
        f"insert into {READ_TABLE} "
        "select n, format('00000000-0000-7000-8000-%012x', n), 1700000000000000 + n, 0, ?, ? from number",
        (count, CONTENT_TYPE, payload),
    )
    connection.close()


def _fill_postgres(url: str, count: int, payload: bytes) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"drop table if exists {READ_TABLE}, {WRITE_TABLE}")
        connection.execute(
            f"create table {READ_TABLE} (position bigint primary key, id text, created_at timestamptz, "
            "priority integer, content_type text, payload bytea)"
        )
        connection.execute(
            f"create table {WRITE_TABLE} (position bigint generated always as identity primary key, "
            "created_at timestamptz default now(), queue text, priority integer, content_type text, payload bytea)"
        )
        connection.execute(f"create index on {WRITE_TABLE} (queue, priority, position)")
        connection.execute(
            f"insert into {READ_TABLE} select n, '00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'), "
            "timestamptz '2026-01-01 UTC' + n * interval '1 microsecond', 0, %s, %s from generate_series(1, %s) as n",
            (CONTENT_TYPE, payload, count),
        )
        connection.execute(f"analyze {READ_TABLE}")


def settle(url: str) -> None:
    """Before every turn: what the one before has written is on the disk, files of Parquet too, and the files of the
    server's write-ahead log can be used again. Else each turn would make new ones, 16 MB of zeros each, while those who
    write wait."""
    if url.startswith("postgres"):
        import psycopg

        with psycopg.connect(url, autocommit=True) as server:
            server.execute("checkpoint")
    os.sync()


def empty_written(url: str) -> None:
    if url.startswith("sqlite:///"):
        import apsw

        file = apsw.Connection(url.removeprefix("sqlite:///"))
        file.execute(f"delete from {WRITE_TABLE}")
        file.close()
    else:
        import psycopg

        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f"truncate {WRITE_TABLE}")
