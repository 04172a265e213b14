"""A lake and its changes. Opening an empty directory creates a lake; any other must already belong to this store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from penstock.domain.errors import LakeBusy, LogDiverged, NotALake, NotFound
from penstock.domain.validation import shown
from penstock.spark.lake.folders import Folder
from penstock.spark.lake.manifest import TOUCH_SECONDS, Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engines.contract import Engine

SIGN = "_penstock_lake.json"
STAGING = "_staging"
CHANGES = "_changes"
GROUP = "lake"
VERSION = 2


class Sign(msgspec.Struct, frozen=True):
    """The file in the directory that names the lake and its store."""

    lake: str
    epoch: str
    version: int = VERSION


class Lake:
    """A lake opened by one run. Until it is closed, or for an hour, files it has read are not removed."""

    def __init__(self, folder: Folder, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *_: object) -> None:
        self.manifest.forget_reader()

    @property
    def engine(self) -> Engine:
        return self.manifest.engine

    def sign(self) -> None:
        """Write the sign with the current layout version."""
        self.folder.write(SIGN, msgspec.json.encode(Sign(self.manifest.lake, self.engine.epoch())))

    def staging(self) -> str:
        return f"{STAGING}/{self.manifest.owner}"

    def file_name(self, window: int) -> str:
        """A prefix for the files of one change, unique to it."""
        return f"{window:010d}-{self.manifest.new_name()}"

    @contextmanager
    def change(self, kind: str) -> Iterator[str]:
        """Run one change: yields the staging directory, and publishes what the caller has staged."""
        self.finish()
        self.manifest.begin(kind, self.staging())
        try:
            with self._alive():
                yield self.staging()
        except LakeBusy:
            raise
        except Exception:
            self.undo()
            raise
        self.roll_forward()

    def undo(self) -> None:
        """Discard a change that is only planned."""
        change = self.manifest.state.change
        if change is not None and change.step == "planned":
            self.folder.remove(change.folder)
            self.manifest.end()

    def finish(self) -> None:
        """Complete or undo the change of a run that died."""
        if self.manifest.state.change is None:
            return
        if self.manifest.take_over().step == "planned":
            self.undo()
        else:
            self.roll_forward()

    def roll_forward(self) -> None:
        """Carry a staged or published change to its end."""
        change = self.manifest.state.change
        assert change is not None
        if change.step == "staged":
            for source, target, _ in change.adds:
                self.folder.move(source, target)
            self.manifest.publish()
        self._note_change()
        for path in change.removes:
            self.folder.remove(path)
        self.folder.remove(change.folder)
        self.manifest.end()

    def _note_change(self) -> None:
        """Name the last change in the directory, so that a store restored from an older copy is recognised."""
        state = self.manifest.state
        name = f"{CHANGES}/{state.changes:010d}-{state.last_change}"
        if not self.folder.exists(name):
            self.folder.write(name, b"")
        for file in self.folder.list(CHANGES, ""):
            if file.path < name:
                self.folder.remove(file.path)

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Renew the change periodically while Spark works."""
        done = Event()

        def renew() -> None:
            while not done.wait(TOUCH_SECONDS):
                try:
                    self.manifest.touch()
                except LakeBusy:  # taken over: the next step of this run will fail
                    return

        renewal = Thread(target=renew, name="penstock-lake", daemon=True)
        renewal.start()
        try:
            yield
        finally:
            done.set()
            renewal.join()


def open_lake(spark: SparkSession, engine: Engine, path: str, *, create: bool = False, group: str = GROUP) -> Lake:
    folder = Folder(spark, path)
    names = [name for name in folder.names() if not name.startswith(".")]
    if not names and not create:
        raise NotFound(f"there is no lake at {shown(path)}: `penstock pipeline archive` makes one")
    if SIGN not in names:
        others = [name for name in names if not name.startswith(SIGN)]
        if others:
            raise NotALake(
                f"{shown(path)} is not a lake, it holds {shown(others[0])}"
                f"{f' and {len(others) - 1} more' if len(others) > 1 else ''}: name a new or empty directory"
            )
        folder.write(SIGN, msgspec.json.encode(Sign(uuid4().hex, engine.epoch())))
    return _known(folder, engine, path, group)


def _known(folder: Folder, engine: Engine, path: str, group: str) -> Lake:
    try:
        sign = msgspec.json.decode(folder.read(SIGN), type=Sign)
    except msgspec.DecodeError:
        raise NotALake(f"{folder.under(SIGN)} is damaged: it does not say whose lake this is") from None
    if sign.version > VERSION:
        raise NotALake(f"the lake at {shown(path)} was made by a newer Penstock: upgrade")
    if sign.epoch != engine.epoch():
        raise NotALake(
            f"the lake at {shown(path)} belongs to another store: a lake has one store, name another directory"
        )
    manifest = Manifest(engine, sign.lake)
    _check_changes(folder, manifest, path)
    if not manifest.is_known:
        manifest.create(folder.path, group)
    return Lake(folder, manifest)


def _check_changes(folder: Folder, manifest: Manifest, path: str) -> None:
    """Refuse a directory that is ahead of the store; an interrupted run only leaves it behind."""
    for file in folder.list(CHANGES, ""):
        number, _, name = file.path.removeprefix(f"{CHANGES}/").partition("-")
        known = manifest.state.changes
        if int(number) > known or (int(number) == known and name != manifest.state.last_change):
            raise LogDiverged(
                f"the lake at {shown(path)} had {int(number)} changes, and the store knows of {known}: it was restored "
                "from a copy, or failed over, and some of what the lake holds is not its own. Archive into a new "
                "directory; this one can still be read as Parquet files"
            )
