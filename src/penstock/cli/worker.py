"""worker"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from penstock.cli.completion import complete_queue
from penstock.cli.format import plural, sentence
from penstock.cli.options import HeartbeatSeconds, count_option, one_of, seconds_option
from penstock.cli.progress import WorkerProgress, progress_view
from penstock.cli.reloader import reload_forever
from penstock.cli.session import CliSession, console
from penstock.client.connection import connect, redacted
from penstock.client.store import Store
from penstock.domain.errors import InvalidInput
from penstock.domain.validation import nearest, shown
from penstock.workers.app import App, as_app
from penstock.workers.backoff import call_with_backoff
from penstock.workers.logs import Format, write_logs
from penstock.workers.tracing import trace
from penstock.workers.worker import Worker

if TYPE_CHECKING:
    from penstock.workers.metrics import Metrics

LEVELS = ("debug", "info", "warning", "error")
DEFAULT_NAME = "app"
# Parameters that a Worker already has: the command line cannot change them.
SETTINGS_OF_WORKER = (
    "url",
    "queue",
    "concurrency",
    "slots",
    "grace_seconds",
    "heartbeat_seconds",
    "sweep_seconds",
    "metrics_port",
    "metrics_host",
    "traced",
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:NAME", help="Where the App (or Worker) is; NAME is `app` if left out.", show_default=False
    ),
]


Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", "-q", metavar="QUEUE", help="Only this queue; may be given again.", autocompletion=complete_queue
    ),
]
Concurrency = Annotated[int, count_option("--concurrency", "Handlers of one queue at the same time.")]
SlotLimits = Annotated[
    str | None,
    typer.Option("--slots", metavar="P:N,...", help="Limits of all queues together, by priority: 0:10,5:4"),
]
Once = Annotated[bool, typer.Option("--once", help="Stop when there is nothing left to do.")]
GraceSeconds = Annotated[float, seconds_option("--grace-seconds", "How long handlers may finish at a stop.")]
SweepSeconds = Annotated[
    float, seconds_option("--sweep-seconds", "Time between two sweeps of all workers together; 0 for none.")
]
PatienceSeconds = Annotated[
    float, seconds_option("--patience-seconds", "How long to wait for a store that is down at the start.")
]
ShowProgress = Annotated[bool, typer.Option("--progress", help="Show what it does while it runs.")]
Reload = Annotated[bool, typer.Option("--reload", help="Start again when the code changes (development).")]
MetricsPort = Annotated[
    int | None, count_option("--metrics-port", "Serve Prometheus metrics on this port.", metavar="PORT")
]
MetricsHost = Annotated[str, typer.Option("--metrics-host", metavar="HOST", help="The address to serve metrics on.")]
Traced = Annotated[bool, typer.Option("--trace", help="Make OpenTelemetry spans.")]
LogFormat = Annotated[str, typer.Option("--log-format", metavar="FORMAT", help="text or json.")]
LogLevel = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help=", ".join(LEVELS) + ".")]


def worker(
    session: CliSession,
    target: Target,
    queue: Queues = None,
    concurrency: Concurrency = 8,
    slots: SlotLimits = None,
    once: Once = False,
    grace_seconds: GraceSeconds = 25,
    heartbeat_seconds: HeartbeatSeconds = 5,
    sweep_seconds: SweepSeconds = 1,
    patience_seconds: PatienceSeconds = 60,
    progress: ShowProgress = False,
    reload: Reload = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    traced: Traced = False,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
) -> None:
    """Run the handlers of an app.

    Example: penstock worker shop.tasks:app --concurrency 16
    """
    form = one_of(("text", "json"), "--log-format")(log_format)
    level = one_of(LEVELS, "--log-level")(log_level)
    if reload:
        words = [word for word in sys.argv[1:] if word != "--reload"]
        raise typer.Exit(reload_forever(["-m", "penstock.cli", *words], Path.cwd()))
    write_logs(cast(Format, form), "error" if progress else level)
    found = find_target(target)
    if isinstance(found, Worker):
        _check_fits_worker(session, target)
        _run(session, found, once, progress, patience_seconds)
        return
    options: dict[str, Any] = {
        "concurrency": concurrency,
        "slots": None if slots is None else parse_slots(slots),
        "queues": queue or None,
        "grace_seconds": grace_seconds,
        "heartbeat_seconds": heartbeat_seconds,
        "sweep_seconds": sweep_seconds or None,
    }
    metrics = None if metrics_port is None else _make_metrics()
    with _open_store(session.settings().url, patience_seconds, traced) as store:
        made = Worker(store, found, observer=metrics, **options)
        if metrics is not None and metrics_port is not None:
            metrics.watch(made)
            metrics.serve(metrics_host, metrics_port)
        _run(session, made, once, progress, patience_seconds)


def _open_store(url: str, patience_seconds: float, traced: bool) -> Store:
    """Open the store, retrying while it is unavailable."""
    store = call_with_backoff(
        f"the store {redacted(url)}", lambda: connect(url), patience_seconds, stop=threading.Event()
    )
    if traced:
        trace(store)
    return store


def _check_fits_worker(session: CliSession, target: str) -> None:
    """Refuse options that would have no effect."""
    useless = [f"--{'trace' if name == 'traced' else name}" for name in SETTINGS_OF_WORKER if name in session.given]
    if useless:
        options = ", ".join(useless).replace("_", "-")
        raise InvalidInput(
            f"{shown(target)} is a Worker, made with settings of its own: leave out {options}, or name an App"
        )


def _make_metrics() -> Metrics:
    from penstock.workers.metrics import Metrics  # only when asked for: it loads the client library

    return Metrics()


def _run(session: CliSession, made: Worker, once: bool, progress: bool, patience_seconds: float = 0) -> None:
    with WorkerProgress(made, console(stderr=True)) if progress else contextlib.nullcontext():
        made.run(once=once, patience_seconds=patience_seconds)
    statuses = made.status()
    total = sum(sum(status.done.values()) for status in statuses)
    session.answer(statuses, sentence(f"{plural(total, 'message')} settled."), progress_view(statuses, {}))


def find_target(target: str) -> App | Worker:
    """Import the App or Worker `module:name`; the current directory comes first on the path."""
    module_name, _, name = target.partition(":")
    name = name or DEFAULT_NAME
    if not module_name:
        raise InvalidInput(f"{shown(target)} names no module: write it as module:name, such as shop.tasks:app")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: Any = _import(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [one for one, value in vars(found).items() if isinstance(value, App | Worker)]
            there = f"; it has {', '.join(known)}" if known else nearest(part, [n for n in dir(found) if n[0] != "_"])
            raise InvalidInput(f"module {shown(module_name)} has no {shown(part)}{there}")
        found = getattr(found, part)
    if isinstance(found, Worker):
        return found
    if not isinstance(found, App | Mapping):
        raise InvalidInput(
            f"{shown(target)} is {shown(found)}: a worker runs a penstock.App, a penstock.Worker or a mapping from "
            "queue to function"
        )
    return as_app(found)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise InvalidInput(f"module {shown(name)} cannot be imported: {_import_error(error)}") from error


def _import_error(error: BaseException) -> str:
    """The error, and the line of the user's code that raised it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = ""
    if frames and frames[-1].filename != __file__:
        where = f" ({frames[-1].filename}, line {frames[-1].lineno})"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}{where}"


def parse_slots(text: str) -> int | dict[int, int]:
    try:
        if ":" not in text:
            return int(text)
        pairs = [part.split(":") for part in text.split(",")]
        return {int(priority): int(limit) for priority, limit in pairs}
    except ValueError:
        raise typer.BadParameter(
            f"{shown(text)} is not a number, and not a list such as 0:10,5:4", param_hint="--slots"
        ) from None
