"""Opening a store of an older version migrates it with all its data."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from penstock import Ack, LeaseLost, Store
from penstock.client.settlements import Held
from penstock.engines.sqlite import migration
from tests.conformance.assertions import assert_trail_is_legal, payloads, take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock

STEPS = migration.steps()
LEASED = 1_772_694_673_170_021  # the token of 3 and 5
LATEST = 1_772_694_673_170_022  # that of 6
SIXTH = "019cbcd6-1712-7ffc-a517-000000000006"


def made_by_an_older(path: Path, version: int) -> apsw.Connection:
    """The schema as it was, in a file of its own."""
    own = apsw.Connection(str(path))
    own.execute("pragma journal_mode = wal").fetchall()
    for _, sql in STEPS[:version]:
        own.execute(sql).fetchall()
    return own


@pytest.fixture
def path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


@pytest.fixture
def older(open_store: Opener, path: Path) -> Store:
    """A store that was of schema 3, opened by this Penstock."""
    own = made_by_an_older(path, 3)
    own.execute(Path(__file__).with_name("schema_3.sql").read_text(encoding="utf-8")).fetchall()
    own.close()
    return open_store()


def schema(path: Path) -> set[tuple[str, str, str]]:
    """Tables with their columns and indexes, however they came about."""
    own = apsw.Connection(str(path))
    found: set[tuple[str, str, str]] = set()
    named = own.execute("select type, name from sqlite_schema where name not like 'sqlite_%'").fetchall()
    for kind, name in ((str(kind), str(name)) for kind, name in named):
        pragma = "index_xinfo" if kind == "index" else "table_xinfo"
        found |= {(kind, name, str(column)) for column in own.execute(f"pragma {pragma} ({name})").fetchall()}
    own.close()
    return found


@pytest.mark.parametrize("version", range(1, len(STEPS)))
def test_every_older_schema_becomes_that_of_a_new_store(
    open_store: Opener, path: Path, tmp_path: Path, version: int
) -> None:
    own = made_by_an_older(path, version)
    facts = [("salt", 4_711), ("epoch", 17), ("last_position", 0), ("schema_version", version)]
    own.executemany("insert into penstock_store (name, value) values (?, ?)", facts)
    own.close()
    open_store().queue("orders").send(1)
    fresh = tmp_path / "fresh.db"
    open_store(f"sqlite:///{fresh}")
    assert schema(path) == schema(fresh)


def test_what_was_leased_is_not_handed_out_again(older: Store) -> None:
    assert payloads(take_all(older.queue("orders"))) == ["order 7", "urgent, later"]


def test_a_lease_from_before_can_be_settled(older: Store) -> None:
    queue = older.queue("orders")
    stale, settled = (queue.settle([Ack(Held(SIXTH, token, "orders", "default", 6))])[0] for token in (LEASED, LATEST))
    assert isinstance(stale.error, LeaseLost)
    assert settled.ok
    assert_trail_is_legal(queue, SIXTH)


def test_a_lease_from_before_ends_when_it_was_to_end(older: Store, clock: Clock) -> None:
    queue = older.queue("orders", backoff_base_seconds=0)
    take_all(queue, lease_seconds=1_000)
    clock.advance(seconds=36.9)
    assert payloads(take_all(queue, lease_seconds=1_000)) == ["order 2"]
    clock.advance(seconds=0.2)
    again = take_all(queue, lease_seconds=1_000)
    assert payloads(again) == ["order 3", "order 5"]
    assert all(delivery.attempt == 2 and delivery.token > LATEST for delivery in again)
    clock.advance(seconds=53)
    assert payloads(take_all(queue)) == ["order 6"]
