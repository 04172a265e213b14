"""demo"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.cli.demo import plan, summary
from penstock.cli.demo.findings import look
from penstock.cli.demo.pipeline import Outcome, run_pipeline
from penstock.cli.demo.story import Stats, Story
from penstock.cli.format import marked
from penstock.cli.session import Session
from penstock.client.connection import SQLITE_PREFIX, connect
from penstock.domain.errors import InvalidUrl, Refused, StoreUnavailable
from penstock.domain.validation import shown

FOLDER = Path("penstock-demo")
# SQLite's own companions of a database file.
SUFFIXES = ("", "-wal", "-shm", "-journal")


def demo(
    session: Session,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove the file that --url names, if there is one.")
    ] = False,
    pipeline: Annotated[
        bool, typer.Option("--pipeline/--no-pipeline", help="End with the data pipeline on Spark, if Spark is there.")
    ] = True,
) -> None:
    """Watch Penstock at work in real processes, and check the result.

    Example: penstock demo
    """
    # Only the flag counts here: a PENSTOCK_URL in the environment may well name a store with real messages.
    url = _own_url() if session.url is None else _fresh_url(session.url, overwrite)
    stage = Stage(session)
    stage.say(f"A fresh store: {url}")
    with stage:
        report = Story(url, stage.say, stage.draw).run()
    with connect(url) as store:
        findings = look(store, report)
    outcome = Outcome(Path(url.removeprefix(SQLITE_PREFIX)))
    outcome.clear()
    if pipeline:
        stage.say("The pipeline reads what happened, with Spark.")
        run_pipeline(url, outcome, stage.say)
    else:
        outcome.skipped = "--no-pipeline"
    document = {**summary.document(url, report, findings), "pipeline": outcome.document()}
    session.answer(document, summary.view(url, report, findings, outcome))
    if not findings.ok or not outcome.ok:
        raise typer.Exit(1)


class Stage:
    """What can be seen while the demo runs: lines of the story, and bars on a terminal."""

    def __init__(self, session: Session) -> None:
        self._quiet = session.as_json
        self._console = session.console
        self._started_at = time.monotonic()
        self._live: Live | None = None
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def say(self, line: str) -> None:
        if not self._quiet:
            elapsed = f"{time.monotonic() - self._started_at:5.1f} s "
            self._console.print(marked([(Text(elapsed, style="dim"), Text(line))]))

    def draw(self, stats: Stats) -> None:
        if self._live is not None:
            self._live.update(_bars(stats), refresh=True)

    def __enter__(self) -> Stage:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def _bars(stats: Stats) -> Table:
    sent = plan.sent_counts()
    made = Table.grid(padding=(0, 2))
    for queue, group in plan.READERS:
        ended = sum(stats[queue, group].outcomes.values()) if (queue, group) in stats else 0
        bar = ProgressBar(total=sent[queue], completed=ended, width=30)
        made.add_row(f"{queue} / {group}", bar, f"{ended:,} of {sent[queue]:,} ended")
    return made


def _own_url() -> str:
    """The demo's own folder, which starts clean every time and which version control does not see."""
    path = FOLDER / "demo.db"
    try:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / ".gitignore").write_text("*\n")
        _remove(path)
    except OSError as error:
        raise StoreUnavailable(f"the demo cannot use {FOLDER} ({error.strerror}): name a place with --url") from None
    return f"{SQLITE_PREFIX}{path.as_posix()}"


def _fresh_url(url: str, overwrite: bool) -> str:
    path = url.removeprefix(SQLITE_PREFIX)
    if path == url or path == ":memory:":
        raise InvalidUrl(
            f"the demo runs several processes on one file: use a URL such as sqlite:///demo.db, not {shown(url)}"
        )
    made = Outcome(Path(path))
    for there in (Path(path), made.lake, made.report):
        if there.exists() and not overwrite:
            raise Refused(f"{there} is there already: the demo wants a fresh file, or --overwrite to remove this one")
    _remove(Path(path))
    return url


def _remove(path: Path) -> None:
    for suffix in SUFFIXES:
        Path(f"{path}{suffix}").unlink(missing_ok=True)
