"""Unusable files: read-only, damaged, not a store, or locked."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import penstock
from penstock import NotAStore, StoreCorrupt, StoreReadOnly, StoreUnavailable

NOBODY = 65534
PAGE = 4096


def make_store(path: Path, messages: int = 300) -> None:
    with penstock.connect(f"sqlite:///{path}") as store:
        store.queue("work").send_many([f"message {number}".encode() * 20 for number in range(messages)])


# -- read-only ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may look into, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-read-only-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Run as another user, because root may write everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_file_that_cannot_be_written_says_so(open_folder: Path) -> None:
    path = open_folder / "store.db"
    make_store(path)
    path.chmod(0o444)
    open_folder.chmod(0o555)
    content = path.read_bytes()
    with without_privileges(), pytest.raises(StoreReadOnly, match=r"store\.db"):
        with penstock.connect(f"sqlite:///{path}") as store:
            store.queue("work").send(b"x")
    assert path.read_bytes() == content


# -- damaged -----------------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"Dear diary, today I was not a database.\n" * 200)
    with pytest.raises(NotAStore, match=r"notes\.txt"):
        penstock.connect(f"sqlite:///{path}").queue("work").send(b"x")
    assert path.read_bytes() == b"Dear diary, today I was not a database.\n" * 200


def test_damage_is_named_and_nothing_is_deleted(tmp_path: Path) -> None:
    """Every page overwritten in turn: either the damage is not touched, or it is named; never a wrong message."""
    sound = tmp_path / "sound.db"
    make_store(sound)
    errors = []
    for page in range(1, sound.stat().st_size // PAGE):
        path = tmp_path / f"damaged-{page}.db"
        damage(sound, path, page * PAGE, PAGE)
        size = path.stat().st_size
        try:
            with penstock.connect(f"sqlite:///{path}") as store:
                for delivery in store.queue("work").receive(limit=1000):
                    assert delivery.payload.startswith(b"message "), delivery.payload
        except (StoreCorrupt, NotAStore) as error:
            errors.append((path.name, str(error)))
        assert path.stat().st_size >= size, "the damaged file was cut"
    assert errors, "unknown: no damage was ever noticed"
    assert all(name in text for name, text in errors)


def test_a_damaged_first_page_is_not_a_store(tmp_path: Path) -> None:
    sound, path = tmp_path / "sound.db", tmp_path / "damaged.db"
    make_store(sound)
    damage(sound, path, 0, 100)
    content = path.read_bytes()
    with pytest.raises((NotAStore, StoreCorrupt), match=r"damaged\.db"):
        penstock.connect(f"sqlite:///{path}").queue("work").send(b"x")
    assert path.read_bytes() == content


def test_a_file_cut_short_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "cut.db"
    make_store(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // PAGE * PAGE)
    assert is_noticed(path)


def is_noticed(path: Path) -> bool:
    """Either a call names the damaged file, or the doctor does."""
    try:
        with penstock.connect(f"sqlite:///{path}") as store:
            store.queue("work").receive(limit=1000)
            return any(check.level == "error" for check in store.doctor())
    except (StoreCorrupt, NotAStore) as error:
        return path.name in str(error)


def damage(sound: Path, path: Path, offset: int, length: int) -> None:
    shutil.copy(sound, path)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(random.Random(offset).randbytes(length))


# -- locked ------------------------------------------------------------------------------------------------------------


def test_a_store_locked_by_somebody_else_is_unavailable_after_a_while(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    make_store(path)
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    with penstock.connect(f"sqlite:///{path}", busy_seconds=0.3) as store:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"store\.db"):
            store.queue("work").send(b"x")
        assert 0.2 < time.monotonic() - began < 60
        # Reading needs no lock, and the next writer gets it.
        assert store.queue("work").stats("default").total == 300
        other.execute("rollback")
        store.queue("work").send(b"x")
        assert store.queue("work").stats("default").total == 301
    other.close()


def test_a_writer_waits_for_a_short_lock(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    make_store(path, 1)
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    with penstock.connect(f"sqlite:///{path}", busy_seconds=10) as store:
        timer = threading.Timer(0.3, lambda: other.execute("rollback"))
        timer.start()
        store.queue("work").send(b"x")
        timer.join()
        assert store.queue("work").stats("default").total == 2
    other.close()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_gone_takes_no_more_messages(tmp_path: Path, how: str) -> None:
    """A process that has it open could keep writing to a deleted file."""
    path = tmp_path / "store.db"
    with penstock.connect(f"sqlite:///{path}") as store:
        queue = store.queue("orders")
        queue.send(1)
        if how == "removed":
            for one in tmp_path.iterdir():
                one.unlink()
        else:
            other = tmp_path / "other.db"
            other.write_bytes(b"")
            other.replace(path)
        for call in (lambda: queue.send(2), queue.receive, queue.stats, store.sweep):
            with pytest.raises(StoreUnavailable, match="was removed while it was open"):
                call()
        [check] = store.doctor()
        assert (check.name, check.level) == ("file", "error")


def test_a_file_with_another_name_besides_is_not_gone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with penstock.connect(f"sqlite:///{path}") as store:
        (tmp_path / "copy.db").hardlink_to(path)
        store.queue("orders").send(1)
        (tmp_path / "copy.db").unlink()
        store.queue("orders").send(2)


def test_locks_are_kept_when_another_store_of_the_same_file_is_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with penstock.connect(url, busy_seconds=0.1) as one, penstock.connect(url, busy_seconds=0.1) as two:
        writer = one.engine.database.writer  # type: ignore[attr-defined]  # the lock is SQLite's own
        writer.execute("begin immediate")
        penstock.connect(url).close()
        with pytest.raises(StoreUnavailable, match="locked"):
            two.queue("orders").send(1)
        writer.execute("rollback")
