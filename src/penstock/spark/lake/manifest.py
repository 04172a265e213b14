"""The manifest: what the lake holds, kept in the store's ledger.

    <lake>/state              the change under way, if any, and settings of the lake
    <lake>/mark/<queue>       up to where the queue is in the lake
    <lake>/file/<path>        a file of the lake
    <lake>/window/<number>    what one run added: from which marks to which, and how many rows
    <lake>/reader/<run>       somebody reads files of the lake: up to this time none is removed
    <lake>/begun/<queue>      behind which position each of its groups began to read

A **change** adds and removes files. It is planned, then staged (its files are whole, but aside), then published (they
are in their places, and the manifest says so), and over when what it replaced is gone. Every step is one transaction
that expects the state as it was: of two runs that meet, one gets an error and has done no harm.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from penstock.domain.errors import LakeBusy
from penstock.domain.times import to_time

if TYPE_CHECKING:
    from penstock.engines.contract import Engine

KIND = "lake"
# A run says this often that it is alive; one that was silent for much longer is not.
TOUCH_SECONDS = 5
SILENT_SECONDS = 60
# Whoever has opened a table may read its files for so long.
READER_SECONDS = 3600


class Marks(msgspec.Struct, frozen=True):
    """Up to where a queue is in the lake: what happened, and what was sent."""

    audit: int | str
    messages: int | str


class Span(msgspec.Struct, frozen=True):
    """What a window holds of a queue."""

    start: Marks
    end: Marks


class Window(msgspec.Struct, frozen=True):
    """What runs added: one run, or several whose windows were joined."""

    first: int
    last: int
    at: int
    spans: dict[str, Span]
    rows: dict[str, int]


class FileEntry(msgspec.Struct, frozen=True):
    """A file: its bytes, its rows, and the SHA-256 of its bytes."""

    size: int
    rows: int
    digest: str


class Change(msgspec.Struct, frozen=True):
    """A change of the lake under way. `adds` are files aside, their places, and what they are."""

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


class State(msgspec.Struct, frozen=True):
    """What holds for the whole lake: the last window, the first day that is kept, and up to which time it goes. Changes
    are counted, and the last one has a name of its own: the directory has it too."""

    path: str
    group: str
    windows: int = 0
    changes: int = 0
    last_change: str = ""
    kept_from: str | None = None
    upto_at: int | None = None
    change: Change | None = None


class Manifest:
    """The manifest of one lake, as one run sees and changes it."""

    def __init__(self, engine: Engine, lake: str) -> None:
        self.engine = engine
        self.lake = lake
        self.owner = uuid4().hex
        self.process = os.getpid()
        self._text: str | None = None
        self.state = State("", "")
        self.refresh()

    def refresh(self) -> None:
        self._text = self.engine.ledger(KIND, f"{self.lake}/state").get(f"{self.lake}/state")
        if self._text is not None:
            self.state = msgspec.json.decode(self._text, type=State)

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

    def _all(self, prefix: str, kind: Any, cut: str) -> dict[str, Any]:
        entries = self.engine.ledger(KIND, f"{self.lake}/{prefix}")
        start = len(f"{self.lake}/{cut}")
        return {key[start:]: msgspec.json.decode(text, type=kind) for key, text in sorted(entries.items())}

    # -- readers ---------------------------------------------------------------------------------------------------

    def note_reader(self) -> None:
        """From now on files are read that the manifest has now."""
        until = self.engine.now() + READER_SECONDS * 1_000_000
        self.engine.record(KIND, {f"{self.lake}/reader/{self.owner}": str(until)})

    def forget_reader(self) -> None:
        self.engine.record(KIND, {}, [f"{self.lake}/reader/{self.owner}"])

    def is_read(self) -> bool:
        """Whether others read files of the lake. Notes whose time is over go."""
        now, notes = self.engine.now(), self._all("reader/", int, "")
        over = [f"{self.lake}/{key}" for key, until in notes.items() if until < now]
        if over:
            self.engine.record(KIND, {}, over)
        return len(notes) > len(over) + (f"reader/{self.owner}" in notes)

    # -- changing --------------------------------------------------------------------------------------------------

    def create(self, path: str, group: str) -> None:
        self._put(State(path, group))

    def begin(self, kind: str, folder: str) -> None:
        """Plan a change; what another run left must have been finished before."""
        assert self.state.change is None
        now = self.engine.now()
        change = Change(kind, "planned", self.owner, socket.gethostname(), self.process, now, now, folder)
        self._put(msgspec.structs.replace(self.state, change=change))

    def stage(self, **fields: Any) -> None:
        self._step("staged", **fields)

    def publish(self) -> None:
        """The files of the change are the lake's from now on, and those it replaces are not."""
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
        if change.kept_from is not None:
            state = msgspec.structs.replace(state, kept_from=change.kept_from)
        if change.upto_at is not None:
            state = msgspec.structs.replace(state, upto_at=change.upto_at)
        state = msgspec.structs.replace(state, changes=state.changes + 1, last_change=self.new_name())
        published = msgspec.structs.replace(change, step="published", adds=(), begun={})
        self._put(msgspec.structs.replace(state, change=published), puts, [f"file/{path}" for path in change.removes])

    def join_windows(self, joined: Window, gone: list[Window]) -> None:
        removes = [f"window/{window.first:010d}" for window in gone if window.first != joined.first]
        self._put(self.state, {f"window/{joined.first:010d}": _encode(joined)}, removes)

    def end(self) -> None:
        self._put(msgspec.structs.replace(self.state, change=None))

    def touch(self) -> None:
        self._step(None, touched_at=self.engine.now())

    def take_over(self) -> Change:
        """Make the change under way ours, if its run is dead; LakeBusy if it is not."""
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

    def _put(self, state: State, puts: dict[str, str] | None = None, removes: list[str] | None = None) -> None:
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
