"""pipeline archive, verify, report, run, status, process, replay"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.status import Status
from rich.text import Text

from penstock.cli.format import cell, duration, escaped, fields_table, marked, plural, sentence, table
from penstock.cli.options import Group as GroupOption
from penstock.cli.options import HeartbeatSeconds, count_option
from penstock.cli.progress import StepLog
from penstock.cli.session import CliSession, check_exists
from penstock.client.pipeline import PipelineStatus, pipeline_status

if TYPE_CHECKING:
    from penstock.spark.jobs import JobTarget
    from penstock.spark.report.findings import Finding

PANEL = "Spark"
Lake = Annotated[
    str,
    typer.Option(
        "--lake",
        metavar="DIR",
        envvar="PENSTOCK_LAKE",
        help="The lake: a directory, or a URL that Spark can write to such as s3a://bucket/lake.",
    ),
]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="Where the report goes.")]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs, such as spark://host:7077; this machine if not given.",
        rich_help_panel=PANEL,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.driver.memory=4g; may be given several times.",
        rich_help_panel=PANEL,
    ),
]
Target = Annotated[
    str, typer.Argument(metavar="MODULE:FUNCTION", help="The handler to run for each message.", show_default=False)
]
KeepDays = Annotated[int | None, count_option("--keep-days", "Remove days from the lake that are older.")]
NoCompact = Annotated[
    bool,
    typer.Option("--no-compact", help="Leave small files of past days as they are, for those who read directories."),
]
AcceptGap = Annotated[
    bool,
    typer.Option("--accept-gap", help="Go on with what is left when the store has trimmed more than was archived."),
]
GroupName = Annotated[
    str,
    typer.Option("--group", metavar="NAME", help="The stream group that holds back trimming; another for each lake."),
]
LAKE, OUT, GROUP = "penstock-lake", "penstock-report.html", "lake"
MARKS = {"good": ("✓", "green"), "note": ("i", "cyan"), "bad": ("!", "bold red")}


def archive(
    session: CliSession,
    lake: Lake = LAKE,
    keep_days: KeepDays = None,
    no_compact: NoCompact = False,
    accept_gap: AcceptGap = False,
    group: GroupName = GROUP,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Bring what has happened since the last time into the lake, exactly once.

    Example: penstock pipeline archive --lake /data/lake
    """
    with _job(session, lake, master, conf) as (place, log):
        from penstock.spark.jobs import Upkeep, run_archive

        done = run_archive(place, Upkeep(keep_days, accept_gap, group, not no_compact), log)
    session.answer(done, sentence(_archived(done, lake)))


def verify(session: CliSession, lake: Lake = LAKE, master: Master = None, conf: Conf = None) -> None:
    """Compare the lake with the store, every row; exits with 1 when they differ.

    Example: penstock pipeline verify --lake /data/lake
    """
    with _job(session, lake, master, conf) as (place, log):
        from penstock.spark.jobs import run_verify

        verdict = run_verify(place, log)
    lines = [
        *(f"{one.table}: {difference}" for one in verdict.comparisons for difference in one.differences),
        *(f"missing or changed: {path}" for path in verdict.missing_files),
        *(f"not part of the lake: {path}" for path in verdict.stray_files),
    ]
    compared = [
        f"{one.table}: {plural(one.rows, 'row')} in the lake, {one.compared:,} of them compared with the store"
        for one in verdict.comparisons
    ]
    views = [marked([(Text("✗", style="bold red"), escaped(line)) for line in lines])] if lines else []
    good = marked([(Text("✓", style="green"), escaped(line)) for line in compared]) if verdict.ok else None
    session.answer(verdict, *views, *([good] if good else []))
    if not verdict.ok:
        raise typer.Exit(1)


def report(session: CliSession, lake: Lake = LAKE, out: Out = OUT, master: Master = None, conf: Conf = None) -> None:
    """Compute the tables of a lake and write a report that a browser shows.

    Example: penstock pipeline report --lake /data/lake --out report.html
    """
    with _job(session, lake, master, conf) as (place, log):
        from penstock.spark.jobs import run_report

        reported = run_report(place, out, log)
    document = {"report": reported.path, "findings": [one._asdict() for one in reported.findings]}
    session.answer(document, _findings_view(reported.findings), sentence(f"The report is {out}"))


def run(
    session: CliSession,
    lake: Lake = LAKE,
    out: Out = OUT,
    keep_days: KeepDays = None,
    no_compact: NoCompact = False,
    accept_gap: AcceptGap = False,
    group: GroupName = GROUP,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Archive, compute the tables and write the report, in one go.

    Example: penstock pipeline run --lake /data/lake --out report.html
    """
    with _job(session, lake, master, conf) as (place, log):
        from penstock.spark.jobs import Upkeep, run_all

        done, reported = run_all(place, out, Upkeep(keep_days, accept_gap, group, not no_compact), log)
    document = {"archived": done, "report": reported.path, "findings": [one._asdict() for one in reported.findings]}
    session.answer(
        document,
        sentence(_archived(done, lake)),
        _findings_view(reported.findings),
        sentence(f"The report is {out}"),
    )


def status(session: CliSession) -> None:
    """Show the last runs of the pipeline, how fresh the lake is, and where the report lies.

    Example: penstock pipeline status
    """
    with session.store() as store:
        found = pipeline_status(store.engine)
        now = store.engine.now()
    session.answer(found, _status_view(found, now / 1_000_000))


def _status_view(found: PipelineStatus, now: float) -> Any:
    if not found.runs:
        return Text("The pipeline has not run yet: penstock pipeline run", style="dim")
    parts: list[Any] = []
    for lake in found.lakes:
        age = duration(max(0.0, now - lake.archived_at.timestamp()))
        fields = {"lake": lake.path, "archived": Text.assemble(age, " ago"), "files": lake.files, "bytes": lake.size}
        parts.append(fields_table(fields))
    if found.report is not None:
        parts.append(fields_table({"report": found.report.path, "made": found.report.made_at}))
    runs = table("job", "began", "took", "result", folds=("result",))
    for one in found.runs[:10]:
        result = Text("ok", style="green") if one.ok else escaped(one.error or "failed", style="red")
        runs.add_row(cell(one.job), cell(one.began_at), duration(one.seconds), result)
    return Group(*parts, Text(), runs)


@contextmanager
def _job(session: CliSession, lake: str, master: str | None, conf: list[str] | None) -> Iterator[tuple[JobTarget, Any]]:
    """Check the store, Spark and the settings before Spark is started; show progress while it runs."""
    with session.store():
        pass
    from penstock.spark.session import check_spark, parse_conf

    check_spark()
    from penstock.spark.jobs import JobTarget

    place = JobTarget(session.settings().url, lake, master, parse_conf(conf or []))
    with JobProgress(session) as progress:
        yield place, progress.write


class JobProgress(StepLog):
    """The steps of a job; at a terminal the current one also has a spinner."""

    def __init__(self, session: CliSession) -> None:
        super().__init__(session)
        self._status: Status | None = None

    def write(self, line: str) -> None:
        super().write(line)
        if self._status is not None:
            self._status.update(escaped(line))

    def __enter__(self) -> JobProgress:
        if self.is_live:
            self._status = self.console.status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()


def _archived(done: Any, lake: str) -> str:
    if not done.queues:
        return f"Nothing new: the lake {lake} is up to date."
    return (
        f"{plural(done.archive, 'ended message')} and {plural(done.audit, 'audit entry', 'audit entries')} of "
        f"{plural(done.queues, 'queue')} are now in the lake {lake}, with {plural(done.dead_letters, 'dead letter')}."
    )


def _findings_view(found: list[Finding]) -> Any:
    return marked([(Text(*MARKS[one.level]), escaped(one.sentence)) for one in found])


def process(
    session: CliSession,
    target: Target,
    queue: Annotated[str, typer.Option("--queue", "-q", metavar="QUEUE", help="Whose messages.")],
    group: GroupOption = None,
    tasks: Annotated[int | None, count_option("--tasks", "Tasks of Spark; one per core if not given.")] = None,
    concurrency: Annotated[int, count_option("--concurrency", "Handlers of one task at the same time.")] = 1,
    heartbeat_seconds: HeartbeatSeconds = 5,
    forever: Annotated[bool, typer.Option("--forever", help="Go on when there is nothing left to do.")] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Run a handler over a queue on Spark.

    Example: penstock pipeline process shop.tasks:pack --queue orders --master spark://spark:7077
    """
    from penstock.spark.process import process as run
    from penstock.spark.session import open_session, parse_conf

    settings = parse_conf(conf or [])
    url = _url(session)
    with open_session("process", master, settings) as spark:
        report = run(
            spark,
            url,
            queue,
            target,
            group=group,
            tasks=tasks,
            concurrency=concurrency,
            heartbeat_seconds=heartbeat_seconds,
            once=not forever,
        )
    words = ", ".join(f"{count:,} {word}" for word, count in sorted(report.settled.items())) or "nothing to do"
    session.answer(report, sentence(plural(report.tasks, "task"), f"of Spark settled: {words}."))


def replay(
    session: CliSession,
    into: Annotated[str, typer.Argument(metavar="INTO", help="The queue to send to.", show_default=False)],
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", metavar="QUEUE", help="Whose messages; needed for dead letters.")
    ] = None,
    lake: Annotated[
        str | None, typer.Option("--lake", metavar="DIRECTORY", help="Finished messages of a lake, not dead letters.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Only those for which this is true.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="A replay sends each message once; another name, again."),
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Send dead letters or finished messages into a queue, each once.

    Example: penstock pipeline replay orders --queue orders --where "reason like '%timeout%'"
    """
    from penstock.spark.replay import replay as run
    from penstock.spark.session import open_session, parse_conf

    settings = parse_conf(conf or [])
    url = _url(session)
    with open_session("replay", master, settings) as spark:
        report = run(spark, url, into, queue=queue, lake=lake, where=where, name=name)
    before = report.chosen - report.sent
    sent = (
        f"chosen; {report.sent:,} sent, {before:,} had been sent by this replay before."
        if before
        else "chosen and sent."
    )
    session.answer(report, sentence(plural(report.chosen, "message"), sent))


def _url(session: CliSession) -> str:
    chosen = session.settings()
    check_exists(chosen)
    return chosen.url
