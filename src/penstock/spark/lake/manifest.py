"""The manifest: the contents of a lake, kept in the store's ledger.

    <lake>/state              the change in progress, if any, and the lake's settings
    <lake>/mark/<queue>       the marks up to which the queue is archived
    <lake>/file/<path>        a file of the lake
    <lake>/window/<number>    what one run added: start and end marks, and row counts
    <lake>/reader/<run>       a reader of the lake's files: none is removed before this time
    <lake>/begun/<queue>      the position after which each group began to read
    <lake>/passed/<queue>     the position up to which each group had no unread message at the last run
    <lake>/history            the state of the computed tables

A **change** adds and removes files. It is planned, then staged (its files are complete in the staging directory), then
published (files moved, manifest updated), and ends when the replaced files are deleted. Every step is a compare-and-set
on the state, so of two concurrent runs one fails without effect.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from penstock.domain.errors import LakeBusy
from penstock.domain.timestamps import to_time

if TYPE_CHECKING:
    from penstock.engines.contract import Engine

KIND = "lake"
# Renewal interval of a change, and when a change that was not renewed counts as abandoned.
TOUCH_SECONDS = 5
SILENT_SECONDS = 60
# How long files of an opened table are kept for its reader.
READER_SECONDS = 3600


class Marks(msgspec.Struct, frozen=True):
    """Marks of a queue: in its audit and in its log."""

    audit: int | str
    messages: int | str


class Span(msgspec.Struct, frozen=True):
    """The range of a queue in a window."""

    start: Marks
    end: Marks


class Window(msgspec.Struct, frozen=True):
    """The rows added by one run, or by several whose windows were joined."""

    first: int
    last: int
    at: int
    spans: dict[str, Span]
    rows: dict[str, int]


class FileEntry(msgspec.Struct, frozen=True):
    """A file: bytes, rows, and SHA-256."""

    size: int
    rows: int
    digest: str


class TablesState(msgspec.Struct, frozen=True):
    """What the computed tables cover: windows up to `window`, taken at `upto_at`, with entries between `begins_at` and
    `ends_at` (microseconds). `groups` lists the groups of each queue, `ended` the queues with messages whose counts are
    final, and `skipped` the last position of such messages that a group skipped."""

    version: int
    window: int = 0
    upto_at: int = 0
    kept_from: str | None = None
    begins_at: int | None = None
    ends_at: int | None = None
    groups: dict[str, list[str]] = {}
    ended: list[str] = []
    skipped: dict[str, dict[str, int]] = {}


class Change(msgspec.Struct, frozen=True):
    """A change in progress. `adds` has the staged path, the final path and the entry of each file."""

    kind: str
    step: str
    owner: str
    host: str
    process: int
    began_at: int
    touched_at: int
    folder: str
    adds: tuple[tuple[str, str, FileEntry], ...] = ()
    removes: tuple[str, ...] = ()
    window: Window | None = None
    kept_from: str | None = None
    upto_at: int | None = None
    begun: dict[str, dict[str, int]] = {}
    passed: dict[str, dict[str, int]] = {}
    history: TablesState | None = None


class LakeState(msgspec.Struct, frozen=True):
    """Settings and progress of the whole lake: last window, first day kept, and the time up to which it is complete.
    Changes are counted, and the last one has a unique name that is also in the directory."""

    path: str
    group: str
    windows: int = 0
    changes: int = 0
    last_change: str = ""
    kept_from: str | None = None
    upto_at: int | None = None
    change: Change | None = None


class Manifest:
    """The manifest of one lake, used by one run."""

    def __init__(self, engine: Engine, lake: str) -> None:
        self.engine = engine
        self.lake = lake
        self.owner = uuid4().hex
        self.process = os.getpid()
        self._text: str | None = None
        self.state = LakeState("", "")
        self.refresh()

    def refresh(self) -> None:
        self._text = self.engine.ledger(KIND, f"{self.lake}/state").get(f"{self.lake}/state")
        if self._text is not None:
            self.state = msgspec.json.decode(self._text, type=LakeState)

    @property
    def is_known(self) -> bool:
        return self._text is not None

    def new_name(self) -> str:
        return uuid4().hex[:12]

    # -- reading ---------------------------------------------------------------------------------------------------

    def files(self, table: str = "") -> dict[str, FileEntry]:
        return self._all(f"file/{table}/" if table else "file/", FileEntry, "file/")

    def marks(self) -> dict[str, Marks]:
        return self._all("mark/", Marks, "mark/")

    def windows(self) -> list[Window]:
        return list(self._all("window/", Window, "window/").values())

    def begun(self) -> dict[str, dict[str, int]]:
        return self._all("begun/", dict[str, int], "begun/")

    def passed(self) -> dict[str, dict[str, int]]:
        return self._all("passed/", dict[str, int], "passed/")

    def history(self) -> TablesState | None:
        return self._all("history", TablesState, "").get("history")

    def _all(self, prefix: str, kind: Any, cut: str) -> dict[str, Any]:
        entries = self.engine.ledger(KIND, f"{self.lake}/{prefix}")
        start = len(f"{self.lake}/{cut}")
        return {key[start:]: msgspec.json.decode(text, type=kind) for key, text in sorted(entries.items())}

    # -- readers ---------------------------------------------------------------------------------------------------

    def note_reader(self) -> None:
        """Protect the files that the manifest lists now from removal."""
        until = self.engine.now() + READER_SECONDS * 1_000_000
        self.engine.record(KIND, {f"{self.lake}/reader/{self.owner}": str(until)})

    def forget_reader(self) -> None:
        self.engine.record(KIND, {}, [f"{self.lake}/reader/{self.owner}"])

    def is_read(self) -> bool:
        """Whether other readers are active. Deletes expired notes."""
        now, notes = self.engine.now(), self._all("reader/", int, "")
        expired = [f"{self.lake}/{key}" for key, until in notes.items() if until < now]
        if expired:
            self.engine.record(KIND, {}, expired)
        return len(notes) > len(expired) + (f"reader/{self.owner}" in notes)

    # -- changing --------------------------------------------------------------------------------------------------

    def create(self, path: str, group: str) -> None:
        self._put(LakeState(path, group))

    def begin(self, kind: str, folder: str) -> None:
        """Plan a change; there must be none in progress."""
        assert self.state.change is None
        now = self.engine.now()
        change = Change(kind, "planned", self.owner, socket.gethostname(), self.process, now, now, folder)
        self._put(msgspec.structs.replace(self.state, change=change))

    def stage(self, **fields: Any) -> None:
        self._step("staged", **fields)

    def publish(self) -> None:
        """Enter the files of the change in the manifest and drop the replaced ones."""
        change = self.state.change
        assert change is not None
        puts = {f"file/{path}": _encode(entry) for _, path, entry in change.adds}
        state = self.state
        if change.window is not None:
            window = change.window
            puts[f"window/{window.first:010d}"] = _encode(window)
            puts |= {f"mark/{queue}": _encode(span.end) for queue, span in window.spans.items()}
            state = msgspec.structs.replace(state, windows=window.last)
        puts |= {f"begun/{queue}": _encode(groups) for queue, groups in change.begun.items()}
        puts |= {f"passed/{queue}": _encode(groups) for queue, groups in change.passed.items()}
        if change.history is not None:
            puts["history"] = _encode(change.history)
        if change.kept_from is not None:
            state = msgspec.structs.replace(state, kept_from=change.kept_from)
        if change.upto_at is not None:
            state = msgspec.structs.replace(state, upto_at=change.upto_at)
        state = msgspec.structs.replace(state, changes=state.changes + 1, last_change=self.new_name())
        published = msgspec.structs.replace(change, step="published", adds=(), begun={}, passed={}, history=None)
        self._put(msgspec.structs.replace(state, change=published), puts, [f"file/{path}" for path in change.removes])

    def join_windows(self, joined: Window, gone: list[Window]) -> None:
        removes = [f"window/{window.first:010d}" for window in gone if window.first != joined.first]
        self._put(self.state, {f"window/{joined.first:010d}": _encode(joined)}, removes)

    def end(self) -> None:
        self._put(msgspec.structs.replace(self.state, change=None))

    def touch(self) -> None:
        self._step(None, touched_at=self.engine.now())

    def take_over(self) -> Change:
        """Take over the change of a dead run; LakeBusy when the run is alive."""
        change = self.state.change
        assert change is not None
        if change.owner != self.owner and self._is_alive(change):
            raise LakeBusy(
                f"a run of process {change.process} on {change.host} has been writing to {self.state.path} since "
                f"{to_time(change.began_at):%Y-%m-%d %H:%M:%S} UTC: wait for it, or stop it"
            )
        self._step(None, owner=self.owner, host=socket.gethostname(), process=self.process)
        assert self.state.change is not None
        return self.state.change

    def _is_alive(self, change: Change) -> bool:
        if self.engine.now() - change.touched_at > SILENT_SECONDS * 1_000_000:
            return False
        if change.host != socket.gethostname():
            return True
        try:
            os.kill(change.process, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True

    def _step(self, step: str | None, **fields: Any) -> None:
        change = self.state.change
        assert change is not None
        changed = msgspec.structs.replace(change, **fields, **({} if step is None else {"step": step}))
        self._put(msgspec.structs.replace(self.state, change=changed))

    def _put(self, state: LakeState, puts: dict[str, str] | None = None, removes: list[str] | None = None) -> None:
        text = _encode(state)
        key = f"{self.lake}/state"
        others = {f"{self.lake}/{name}": value for name, value in (puts or {}).items()}
        gone = [f"{self.lake}/{name}" for name in removes or []]
        if not self.engine.record(KIND, {key: text, **others}, gone, {key: self._text}):
            self.refresh()
            raise LakeBusy(f"another run has begun to write to {self.state.path}: this one stops, nothing is lost")
        self._text, self.state = text, state


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()
