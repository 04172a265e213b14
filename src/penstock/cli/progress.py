"""Live views (status --watch, worker --progress), and the steps of a long job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.format import cell, duration, escaped, marked, table
from penstock.cli.rates import QueueRates, RateMeter
from penstock.cli.session import CliSession
from penstock.client.store import Store
from penstock.domain.errors import StoreUnavailable
from penstock.domain.results import GroupStats
from penstock.workers.worker import SourceStatus, Worker

PROGRESS_SECONDS = 0.5


class StepLog:
    """Prints a line for each step of a long job, with the time since its start; nothing with --json."""

    def __init__(self, session: CliSession) -> None:
        self.console = session.console
        self.is_quiet = session.as_json
        self._started_at = time.monotonic()

    @property
    def is_live(self) -> bool:
        """Whether a view can be redrawn in place below the lines."""
        return self.console.is_terminal and not self.is_quiet

    def write(self, line: str) -> None:
        if not self.is_quiet:
            elapsed = f"{time.monotonic() - self._started_at:5.1f} s "
            self.console.print(marked([(Text(elapsed, style="dim"), escaped(line))]))


class StatsWatcher:
    """Reads the counts of queues, with their rates since the last read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._meters: dict[tuple[str, str], RateMeter] = {}

    def look(self, names: list[str] | None) -> list[tuple[str, str, GroupStats, QueueRates]]:
        now = time.monotonic()
        every = [info.name for info in self._store.queues()] if names is None else names
        return [
            (name, group, stats, self._meters.setdefault((name, group), RateMeter()).sample(stats, now))
            for name in every
            for group, stats in self._store.queue(name).stats().items()
        ]


def watch(
    console: Console, look: Callable[[], tuple[RenderableType, Any]], every_seconds: float, as_json: bool, write: Any
) -> None:
    """Print a document per line, or redraw a table, until Ctrl-C."""
    try:
        if as_json:
            while True:
                write(look()[1])
                time.sleep(every_seconds)
        with Live(look()[0], console=console, auto_refresh=False) as live:
            while True:
                time.sleep(every_seconds)
                live.update(look()[0], refresh=True)
    except KeyboardInterrupt:
        return


def rates_view(looks: list[tuple[str, str, GroupStats, QueueRates]]) -> Table:
    numbers = ("backlog", "running", "sent/s", "done/s", "failed/s", "dead", "lag", "oldest", "empty in")
    made = table("queue", "group", *numbers, numbers=numbers, spares=("lag", "oldest", "empty in"))
    for name, group, stats, pace in looks:
        made.add_row(
            escaped(name),
            escaped(group),
            cell(pace.backlog),
            cell(stats.in_progress),
            f"{pace.sent_per_second:,.1f}",
            f"{pace.finished_per_second:,.1f}",
            Text(f"{pace.failed_per_second:,.1f}", style="red" if pace.failed_per_second else "dim"),
            Text(f"{stats.dead:,}", style="red" if stats.dead else "dim"),
            cell(stats.lag),
            duration(stats.oldest_age_seconds),
            duration(pace.drain_seconds),
        )
    return made


def rate_documents(looks: list[tuple[str, str, GroupStats, QueueRates]]) -> list[dict[str, Any]]:
    return [
        {"queue": name, "group": group, **msgspec.structs.asdict(pace), "lag": stats.lag, "dead": stats.dead}
        for name, group, stats, pace in looks
    ]


class WorkerProgress:
    """Redraws a table of the worker's queues while it runs."""

    def __init__(self, worker: Worker, console: Console) -> None:
        self._worker = worker
        self._console = console
        self._watcher = StatsWatcher(worker.store)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="penstock-progress", daemon=True)

    def __enter__(self) -> WorkerProgress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _draw(self) -> None:
        with Live(Text(""), console=self._console, auto_refresh=False) as live:
            while not self._stop.wait(PROGRESS_SECONDS):
                live.update(self.view(), refresh=True)

    def view(self) -> RenderableType:
        statuses = self._worker.status()
        names = sorted({status.queue for status in statuses})
        try:
            paces = {(name, group): pace for name, group, _, pace in self._watcher.look(names)}
        except StoreUnavailable as error:
            return escaped(f"the store is away: {error}", style="yellow")
        return progress_view(statuses, paces)


def progress_view(statuses: list[SourceStatus], paces: dict[tuple[str, str], QueueRates]) -> Table:
    numbers = ("running", "waiting here", "ack", "nak", "other", "done/s", "backlog", "empty in")
    made = table("queue", "handler", *numbers, numbers=numbers, spares=("other", "waiting here"))
    for status in statuses:
        pace = paces.get((status.queue, status.group))
        known = ("ack", "nak")
        other = sum(count for name, count in status.done.items() if name not in known)
        made.add_row(
            escaped(status.queue),
            escaped(status.handler),
            cell(status.running),
            cell(status.waiting),
            *(cell(status.done.get(name, 0)) for name in known),
            cell(other),
            "-" if pace is None else f"{pace.finished_per_second:,.1f}",
            "-" if pace is None else cell(pace.backlog),
            duration(None if pace is None else pace.drain_seconds),
        )
    return made
