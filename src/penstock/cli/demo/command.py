"""demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from penstock.cli.demo import plan, summary
from penstock.cli.demo.findings import examine
from penstock.cli.demo.pipeline import PipelineResult, run_pipeline
from penstock.cli.demo.story import Stats, Story
from penstock.cli.progress import StepLog
from penstock.cli.session import CliSession
from penstock.client.connection import SQLITE_PREFIX, connect
from penstock.domain.errors import InvalidUrl, Refused, StoreUnavailable
from penstock.domain.validation import shown

FOLDER = Path("penstock-demo")
# A SQLite database file and the files beside it.
SUFFIXES = ("", "-wal", "-shm", "-journal")


def demo(
    session: CliSession,
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
    # Only the flag counts: PENSTOCK_URL may name a store with real messages.
    url = _own_url() if session.url is None else _fresh_url(session.url, overwrite)
    progress = DemoProgress(session)
    progress.write(f"A fresh store: {url}")
    with progress:
        report = Story(url, progress.write, progress.draw).run()
    with connect(url) as store:
        findings = examine(store, report)
    outcome = PipelineResult(Path(url.removeprefix(SQLITE_PREFIX)))
    outcome.clear()
    if pipeline:
        progress.write("The pipeline reads what happened, with Spark.")
        run_pipeline(url, outcome, progress.write)
    else:
        outcome.skipped = "--no-pipeline"
    document = {**summary.document(url, report, findings), "pipeline": outcome.document()}
    session.answer(document, summary.view(url, report, findings, outcome))
    if not findings.ok or not outcome.ok:
        raise typer.Exit(1)


class DemoProgress(StepLog):
    """The steps of the demo; at a terminal, also bars of the messages that have ended."""

    def __init__(self, session: CliSession) -> None:
        super().__init__(session)
        self._live = Live(console=self.console, auto_refresh=False, transient=True) if self.is_live else None

    def draw(self, stats: Stats) -> None:
        if self._live is not None:
            self._live.update(_bars(stats), refresh=True)

    def __enter__(self) -> DemoProgress:
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
    """A store in the demo's own directory, emptied at every start and ignored by git."""
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
    made = PipelineResult(Path(path))
    for there in (Path(path), made.lake, made.report):
        if there.exists() and not overwrite:
            raise Refused(f"{there} is there already: the demo wants a fresh file, or --overwrite to remove this one")
    _remove(Path(path))
    return url


def _remove(path: Path) -> None:
    for suffix in SUFFIXES:
        Path(f"{path}{suffix}").unlink(missing_ok=True)
