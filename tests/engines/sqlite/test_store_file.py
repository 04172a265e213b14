"""Opening a SQLite store: what is a store, what can become one, and what is refused untouched."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import penstock
from penstock import (
    InvalidUrl,
    NotAStore,
    PenstockError,
    SchemaTooNew,
    Store,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from tests.conformance.assertions import payloads, take_all
from tests.conformance.clients import Opener


@pytest.fixture
def path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def test_a_new_file_becomes_a_store(open_store: Opener, path: Path) -> None:
    assert not path.exists()
    open_store().queue("orders").send(1)
    assert path.exists()


def test_an_empty_file_becomes_a_store(open_store: Opener, path: Path) -> None:
    path.touch()
    open_store().queue("orders").send(1)


def test_an_application_database_becomes_a_store_and_keeps_its_tables(open_store: Opener, path: Path) -> None:
    with apsw.Connection(str(path)) as own:
        own.execute("create table queue (number integer); insert into queue values (7)")
        own.execute("pragma user_version = 41")
    own.close()
    open_store().queue("orders").send(1)
    own = apsw.Connection(str(path))
    assert own.execute("select number from queue").fetchall() == [(7,)]
    assert own.execute("pragma user_version").fetchall() == [(41,)]
    own.close()


def test_every_table_of_penstock_says_so_in_its_name(store: Store, path: Path) -> None:
    store.queue("orders").send(1)
    own = apsw.Connection(str(path))
    names = [name for (name,) in own.execute("select name from sqlite_master where type in ('table', 'view')")]
    own.close()
    assert names
    assert all(name.startswith(("penstock_", "sqlite_")) for name in names)


def test_names_of_files_are_taken_as_they_are(open_store: Opener, tmp_path: Path) -> None:
    odd = tmp_path / "a b#c%20 ü'.db"
    open_store(f"sqlite:///{odd}").queue("orders").send(1)
    assert odd.exists()


def test_a_relative_path_is_relative_to_where_the_program_runs(
    open_store: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:///relative.db").queue("orders").send(1)
    assert (tmp_path / "relative.db").exists()


def test_a_store_in_memory_works_and_is_gone_when_closed(open_store: Opener) -> None:
    store = open_store("sqlite:///:memory:")
    store.queue("orders").send_many([1, 2])
    assert payloads(take_all(store.queue("orders"))) == [1, 2]
    store.close()
    assert open_store("sqlite:///:memory:").queues() == []


def test_a_folder_is_no_store(open_store: Opener, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=tmp_path.name):
        open_store(f"sqlite:///{tmp_path}")


def test_a_missing_folder_is_named(open_store: Opener, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing"):
        open_store(f"sqlite:///{tmp_path / 'missing' / 'store.db'}")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("content", [b"just some text\n" * 100, b"\x00" * 8_192, os.urandom(8_192)])
def test_a_file_that_is_something_else_is_refused_and_left_alone(
    open_store: Opener, path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    with pytest.raises(NotAStore, match=path.name):
        open_store()
    assert path.read_bytes() == content


def test_a_store_from_the_future_is_refused_and_left_alone(open_store: Opener, path: Path) -> None:
    open_store().close()
    own = apsw.Connection(str(path))
    [(before,)] = own.execute("select count(*) from sqlite_master").fetchall()
    bump_version(own)
    own.close()
    with pytest.raises(SchemaTooNew):
        open_store()
    own = apsw.Connection(str(path))
    assert own.execute("select count(*) from sqlite_master").fetchall() == [(before,)]
    own.close()


def bump_version(own: apsw.Connection) -> None:
    own.execute("update penstock_store set value = 999 where name = 'schema_version'")


def test_a_damaged_store_says_so_and_nothing_is_removed(open_store: Opener, path: Path) -> None:
    store = open_store()
    store.queue("orders").send_many([b"x" * 3_000 for _ in range(200)])
    store.close()
    whole = path.read_bytes()
    damaged = whole[:4_096] + b"\xa5" * (len(whole) - 8_192) + whole[-4_096:]
    path.write_bytes(damaged)
    with pytest.raises((StoreCorrupt, NotAStore)):
        open_store().queue("orders").receive(limit=1_000)
    assert len(path.read_bytes()) >= len(damaged)


@contextmanager
def without_rights() -> Iterator[None]:
    """As another user: file permissions do not bind root."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(me)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory with access for all users; pytest's own has none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("folder_mode", [0o555, 0o777], ids=oct)
def test_a_file_that_may_only_be_read_says_so(open_store: Opener, open_folder: Path, folder_mode: int) -> None:
    path = open_folder / "store.db"
    store = open_store(f"sqlite:///{path}")
    store.queue("orders").send(1)
    store.close()
    path.chmod(0o444)
    open_folder.chmod(folder_mode)
    with without_rights(), pytest.raises(StoreReadOnly, match=path.name):
        open_store(f"sqlite:///{path}").queue("orders").send(2)


def test_a_file_that_may_not_even_be_read_says_so(open_store: Opener, open_folder: Path) -> None:
    path = open_folder / "store.db"
    open_store(f"sqlite:///{path}").close()
    path.chmod(0o000)
    with without_rights(), pytest.raises(StoreError, match=path.name):
        open_store(f"sqlite:///{path}")


def test_a_store_that_another_writer_holds_is_unavailable_for_now(open_store: Opener, path: Path) -> None:
    store = open_store(busy_seconds=0.05)
    store.queue("orders").send(1)
    own = apsw.Connection(str(path))
    own.execute("begin immediate")
    with pytest.raises(StoreUnavailable):
        store.queue("orders").send(2)
    own.execute("rollback")
    own.close()
    store.queue("orders").send(3)
    assert payloads(take_all(store.queue("orders"))) == [1, 3]


BAD_URLS: list[Any] = [
    "",
    "store.db",
    "/var/store.db",
    "sqlite:",
    "sqlite://",
    "sqlite:///",
    "sqlite://store.db",
    "sqlite:///store.db?mode=ro",
    "sqlite:///a\x00b",
    "sqllite:///store.db",
    "SQLITE:/store.db",
    "oracle://host/db",
    None,
    7,
    b"sqlite:///store.db",
]


@pytest.mark.parametrize("wrong", BAD_URLS, ids=repr)
def test_a_bad_url_is_refused(open_store: Opener, wrong: Any) -> None:
    with pytest.raises(InvalidUrl):
        open_store(wrong)


def test_an_unknown_scheme_suggests_the_nearest(open_store: Opener) -> None:
    with pytest.raises(InvalidUrl, match="sqlite"):
        open_store("sqllite:///store.db")


@pytest.mark.parametrize("seconds", [-1, "long", float("nan")])
def test_a_bad_busy_time_is_refused(url: str, seconds: Any) -> None:
    with pytest.raises(PenstockError, match="busy_seconds"):
        penstock.connect(url, busy_seconds=seconds)


def test_a_store_that_was_closed_says_so(open_store: Opener) -> None:
    store = open_store()
    store.close()
    with pytest.raises(StoreError):
        store.queue("orders").send(1)


def test_closing_waits_for_the_call_of_another_thread(url: str, path: Path) -> None:
    """As when a worker stops while its heartbeat waits for another process."""
    store = penstock.connect(url)
    store.queue("orders").send(1)
    own = apsw.Connection(str(path))
    own.execute("begin immediate")
    with ThreadPoolExecutor() as threads:
        sent = threads.submit(store.queue("orders").send, 2)
        while not threads.submit(_is_writing, store).result():
            assert not sent.done()
        closed = threads.submit(store.close)
        with pytest.raises(TimeoutError):
            closed.result(0.1)
        own.execute("rollback")
        assert closed.result(60) is None
        assert sent.result(60)
    own.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.queue("orders").send(3)


def _is_writing(store: Store) -> bool:
    database = store.engine.database  # type: ignore[attr-defined]
    if database.write_lock.acquire(blocking=False):
        database.write_lock.release()
        return False
    return True


def test_writes_are_durable_and_readers_do_not_block(store: Store, path: Path) -> None:
    own = apsw.Connection(str(path))
    assert own.execute("pragma journal_mode").fetchall() == [("wal",)]
    own.close()
