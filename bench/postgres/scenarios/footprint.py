"""The footprint of a message: bytes of write-ahead log, and dead rows for vacuum."""

from __future__ import annotations

from typing import Any

import psycopg

from bench.finding import Finding, Target
from bench.postgres.contenders import PENSTOCK
from bench.postgres.crew import at_work
from bench.postgres.field import Field, tell

BATCH = 100
MOST_DEAD_ROWS = 0.05
FOOTPRINT = """
    select pg_current_wal_lsn() - '0/0'::pg_lsn, coalesce(sum(n_tup_upd + n_tup_del - n_tup_hot_upd), 0),
        coalesce(sum(n_tup_upd + n_tup_del), 0)
    from pg_stat_user_tables
"""


def run(field: Field) -> Finding:
    data: dict[str, dict[str, float]] = {}
    for contender in field.contenders(BATCH):
        tell(f"footprint: {contender.name}")
        url = field.fresh(contender)
        with psycopg.connect(url, autocommit=True) as connection:
            with at_work(contender, url, BATCH) as crew:
                crew.wait_for(taken=2 * BATCH)
                before, begun = _footprint(connection), crew.tally.taken
                crew.rates(field.seconds)
                finished = crew.tally.taken - begun
            after = _footprint(connection)
        wal, _, dead = (late - early for late, early in zip(after, before, strict=True))
        data[contender.name] = {"wal_bytes": wal / finished, "dead_rows": dead / finished}
    dead_rows = data[PENSTOCK]["dead_rows"]
    return Finding(
        name="footprint",
        title=f"Left behind by each message of 200 bytes, end to end at batch {BATCH}",
        header=["who", "WAL bytes", "dead rows"],
        rows=[[name, f"{one['wal_bytes']:,.0f}", f"{one['dead_rows']:.3f}"] for name, one in data.items()],
        data=data,
        draw=lambda axes: _draw(axes, data),
        targets=[Target(f"at most {MOST_DEAD_ROWS} dead rows per message", dead_rows, dead_rows <= MOST_DEAD_ROWS)],
    )


def _footprint(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[float, ...]:
    # Sessions report what they did when they end, or at the latest after a second of work.
    connection.execute("select pg_stat_force_next_flush()")
    row = connection.execute(FOOTPRINT).fetchone()
    assert row is not None
    return tuple(float(value) for value in row)


def _draw(axes: Any, data: dict[str, dict[str, float]]) -> None:
    axes.bar([*data], [one["wal_bytes"] for one in data.values()])
    axes.set(title="WAL bytes per message", ylabel="bytes")
    axes.tick_params(axis="x", rotation=20)
