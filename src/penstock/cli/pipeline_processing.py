"""pipeline process, pipeline replay"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.existing import check_there
from penstock.cli.options import Group, count_option, seconds_option
from penstock.cli.rendering import plural, sentence
from penstock.cli.session import Session

Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], spark://host:7077, yarn, k8s://..."),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be given again.")
]
Target = Annotated[
    str, typer.Argument(metavar="MODULE:FUNCTION", help="The handler to run for each message.", show_default=False)
]


def process(
    session: Session,
    target: Target,
    queue: Annotated[str, typer.Option("--queue", "-q", metavar="QUEUE", help="Whose messages.")],
    group: Group = None,
    tasks: Annotated[int | None, count_option("--tasks", "Tasks of Spark; one per core if not given.")] = None,
    concurrency: Annotated[int, count_option("--concurrency", "Handlers of one task at the same time.")] = 1,
    heartbeat_seconds: Annotated[
        float, seconds_option("--heartbeat-seconds", "Two missed ones, and others take over.")
    ] = 5,
    forever: Annotated[bool, typer.Option("--forever", help="Go on when there is nothing left to do.")] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Run a handler over a queue on Spark.

    Example: penstock pipeline process shop.tasks:pack --queue orders --master spark://spark:7077
    """
    from penstock.spark.processing import process as run
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
    session: Session,
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
    from penstock.spark.replaying import replay as run
    from penstock.spark.session import open_session, parse_conf

    settings = parse_conf(conf or [])
    url = _url(session)
    with open_session("replay", master, settings) as spark:
        report = run(spark, url, into, queue=queue, lake=lake, where=where, name=name)
    before = report.chosen - report.sent
    told = f"{report.sent:,} sent, {before:,} had been sent by this replay before." if before else "and sent."
    session.answer(report, sentence(plural(report.chosen, "message"), "chosen;" if before else "chosen", told))


def _url(session: Session) -> str:
    chosen = session.settings()
    check_there(chosen)
    return chosen.url
