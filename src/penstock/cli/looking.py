"""status, info, audit, explain"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.batch import batches_view
from penstock.cli.consumers import consumers_view
from penstock.cli.documents import group_document, queue_document
from penstock.cli.escaping import escaped
from penstock.cli.options import Group, MessageId, QueueName, QueueNames, seconds_option
from penstock.cli.rendering import cell, clock_time, duration, fields_table, moment, table
from penstock.cli.session import Session, known_queue
from penstock.cli.watching import Watcher, pace_documents, paces_view, watch
from penstock.client.connecting import redacted
from penstock.client.store import Store
from penstock.domain.lifecycle import LIVE, State
from penstock.domain.observations import AuditEntry, Explanation, GroupStats, QueueInfo
from penstock.domain.policy import Policy
from penstock.domain.times import check_seconds

COUNTS = ("available", "redo", "in_progress", "held", "done", "dead", "lag")


def status(
    session: Session,
    queue: QueueNames = None,
    watched: Annotated[bool, typer.Option("--watch", help="Look again and again, with rates.")] = False,
    every_seconds: Annotated[float, seconds_option("--every-seconds", "Time between two looks of --watch.")] = 1,
) -> None:
    """Count the messages of every queue and group.

    Example: penstock status orders
    """
    if watched:
        _watch(session, queue, check_seconds("every_seconds", every_seconds, above=True))
        return
    with session.store() as store:
        chosen = _chosen(store, queue)
        counted = [(info, store.queue(info.name).stats()) for info in chosen]
    document = [
        group_document(info.name, group, stats, info.policy.paused)
        for info, groups in counted
        for group, stats in groups.items()
    ]
    if not counted:
        session.answer(document, Text(f"No queues yet in {redacted(session.settings().url)}.", style="dim"))
    else:
        session.answer(document, groups_view(counted))


def _watch(session: Session, names: list[str] | None, every_seconds: float) -> None:
    with session.store() as store:
        chosen = None if not names else [info.name for info in _chosen(store, names)]
        watcher = Watcher(store)

        def look() -> tuple[Table, list[dict[str, Any]]]:
            looks = watcher.look(chosen)
            return paces_view(looks), pace_documents(looks)

        watch(session.console, look, every_seconds, session.as_json, session.answer)


def info(session: Session, queue: QueueName) -> None:
    """Show a queue: its policy, groups, consumers and batches.

    Example: penstock info orders
    """
    with session.store() as store:
        source = known_queue(store, queue)
        about = next(info for info in store.queues() if info.name == queue)
        stats, consumers, batches = source.stats(), source.consumers(), source.batches()
    session.answer(
        queue_document(about, stats, consumers, batches),
        escaped(f"Queue {queue}, made {moment(about.created_at)}", style="bold"),
        Text(),
        policy_view(about.policy),
        Text("\nGroups", style="bold"),
        groups_view([(about, stats)]),
        *([Text("\nConsumers", style="bold"), consumers_view(consumers)] if consumers else []),
        *([Text("\nBatches", style="bold"), batches_view(batches)] if batches else []),
    )


def audit(session: Session, queue: QueueName, id: MessageId) -> None:
    """Show what happened to a message, step by step.

    Example: penstock audit orders 019a8c3e-7b2d-7abc-8def-00000000002a
    """
    with session.store() as store:
        trail = known_queue(store, queue).audit(id)
    session.answer(trail, timeline(trail))


def explain(session: Session, queue: QueueName, id: MessageId, group: Group = None) -> None:
    """Say where a message is, why it waits, and what to do about it.

    Example: penstock explain orders 019a8c3e-7b2d-7abc-8def-00000000002a
    """
    with session.store() as store:
        explanation = known_queue(store, queue).explain(id, group)
    session.answer(explanation, _explanation_view(explanation))


def groups_view(counted: list[tuple[QueueInfo, dict[str, GroupStats]]]) -> Table:
    names = [name.replace("_", " ") for name in COUNTS]
    made = table(
        "queue", "group", *names, "oldest", numbers=(*names, "oldest"), folds=("queue", "group", "in progress")
    )
    for about, groups in counted:
        name = escaped(about.name)
        if about.policy.paused:
            name.append(" (paused)", style="yellow")
        if not groups:
            made.add_row(name, cell(None))
        for group, stats in groups.items():
            counts = [_count(column, getattr(stats, column)) for column in COUNTS]
            made.add_row(name, escaped(group), *counts, duration(stats.oldest_age_seconds))
            name = Text("")
    return made


def policy_view(policy: Policy) -> Table:
    """Every field, spelled as `queues declare` takes it; those that differ from the default stand out."""
    plain = Policy()
    fields: dict[str, object] = {}
    for name in Policy.__struct_fields__:
        value = getattr(policy, name)
        shown = escaped(_declared(value), style="bold cyan" if value != getattr(plain, name) else "")
        if name.endswith("_seconds") and value is not None and value >= 60:
            shown = Text.assemble(shown, (f" ({duration(value)})", "dim"))
        fields[name] = shown
    return fields_table(fields)


def timeline(trail: list[AuditEntry]) -> Table:
    """A line for each step, with the seconds that passed since the one before."""
    columns = ("at", "after", "event", "state", "group", "try", "by: why")
    made = table(*columns, numbers=("after", "try"), folds=("by: why",))
    made.title, made.title_style = f"{trail[0].at:%Y-%m-%d} UTC" if trail else "", "dim"
    before = None
    for step in trail:
        after = "" if before is None else f"+{(step.at - before.at).total_seconds():.3f}"
        at = clock_time(step.at) if step.at.date() == trail[0].at.date() else moment(step.at)
        made.add_row(
            at,
            Text(after, style="dim"),
            escaped(step.event),
            Text(step.state, style=state_style(step.state)),
            cell(step.group),
            str(step.attempt) if step.attempt else Text(""),
            escaped(f"{step.by}: {step.reason}" if step.reason else step.by),
        )
        before = step
    return made


def state_style(state: State) -> str:
    if state is State.SUCCEEDED:
        return "green"
    return "" if state in LIVE else "red"


def _chosen(store: Store, names: list[str] | None) -> list[QueueInfo]:
    every = store.queues()
    if not names:
        return every
    wanted = {known_queue(store, name).name for name in names}
    return [info for info in every if info.name in wanted]


def _declared(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _count(column: str, count: int) -> Text:
    if count == 0:
        return Text("0", style="dim")
    return Text(f"{count:,}", style="red" if column == "dead" else "")


def _explanation_view(explanation: Explanation) -> Text:
    shown = Text.assemble(
        escaped(explanation.id),
        " is ",
        Text(explanation.state, style=state_style(explanation.state) or "bold"),
        escaped(f" in group {explanation.group}: {explanation.because}"),
    )
    if explanation.advice:
        shown.append("\n").append_text(escaped(f"What to do: {explanation.advice}"))
    return shown
