"""queues, queues declare, queues policy, queues delete, status, info, pause, resume, seek, flush"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.batches import batches_view
from penstock.cli.consumers import consumers_view
from penstock.cli.documents import group_document, queue_document
from penstock.cli.format import cell, duration, escaped, fields_table, moment, plural, sentence, table
from penstock.cli.options import QueueName, QueueNames, Yes, parse_pairs, seconds_option, zoned_time
from penstock.cli.progress import StatsWatcher, rate_documents, rates_view, watch
from penstock.cli.session import CliSession, confirmed, known_queue
from penstock.client.connection import redacted
from penstock.client.settlements import SEEK_TARGETS
from penstock.client.store import Store
from penstock.domain.errors import InvalidInput, Refused
from penstock.domain.policy import Policy, check_changes
from penstock.domain.results import GroupStats, QueueInfo, RetentionPreview, SeekPreview
from penstock.domain.validation import check_seconds, seconds_of, shown

COUNTS = ("available", "redo", "in_progress", "held", "done", "failed_attempts", "dead", "lag")
RED = ("failed_attempts", "dead")


def status(
    session: CliSession,
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


def _watch(session: CliSession, names: list[str] | None, every_seconds: float) -> None:
    with session.store() as store:
        chosen = None if not names else [info.name for info in _chosen(store, names)]
        watcher = StatsWatcher(store)

        def look() -> tuple[Table, list[dict[str, Any]]]:
            sampled = watcher.look(chosen)
            return rates_view(sampled), rate_documents(sampled)

        watch(session.console, look, every_seconds, session.as_json, session.answer)


def info(session: CliSession, queue: QueueName) -> None:
    """Show a queue: its policy, groups, consumers and batches.

    Example: penstock info orders
    """
    with session.queue(queue) as source:
        about = next(info for info in source.store.queues() if info.name == queue)
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


def groups_view(counted: list[tuple[QueueInfo, dict[str, GroupStats]]]) -> Table:
    names = [name.replace("_", " ") for name in COUNTS]
    made = table(
        "queue",
        "group",
        *names,
        "oldest",
        numbers=(*names, "oldest"),
        spares=("lag", "redo", "oldest", "failed attempts", "held", "done"),
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
    """All fields, in the syntax of `queues declare`; values that differ from the default are highlighted."""
    plain = Policy()
    fields: dict[str, object] = {}
    for name in Policy.__struct_fields__:
        value = getattr(policy, name)
        shown = escaped(_declared(value), style="bold cyan" if value != getattr(plain, name) else "")
        if name.endswith("_seconds") and value is not None and value >= 60:
            shown = Text.assemble(shown, (f" ({duration(value)})", "dim"))
        fields[name] = shown
    return fields_table(fields)


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
    return Text(f"{count:,}", style="red" if column in RED else "")


def seek_target(text: str) -> int | datetime | str:
    """Parse the target of a seek."""
    if text in ("start", "end"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"seek goes to {SEEK_TARGETS} (such as 2026-01-31T12:00:00Z), not {shown(text)}"
        ) from None
    return zoned_time(text)


def list_queues(session: CliSession) -> None:
    """List the queues with the main points of their policy.

    Example: penstock queues list
    """
    with session.store() as store:
        queues = store.queues()
    session.answer(queues, _queues_view(queues))


def declare(
    session: CliSession,
    queue: QueueName,
    field: Annotated[
        list[str], typer.Argument(metavar="FIELD=VALUE", help="Policy fields to set.", show_default=False)
    ],
    yes: Yes = False,
) -> None:
    """Set policy fields of a queue, creating it if there is none; other fields keep their value.

    Example: penstock queues declare orders lease_seconds=5m max_retries=none
    """
    changes = check_changes(_parse_fields(field))
    with session.store(create=True) as store:
        source = store.queue(queue)
        if session.is_interactive and not yes and source.engine.has(queue):
            _ask_about_retention(session, source.preview_retention(**changes), queue)
        policy = store.queue(queue, **changes).policy()
    session.answer({"name": queue, "policy": policy}, policy_view(policy))


def policy(session: CliSession, queue: QueueName) -> None:
    """Show the policy of a queue; what differs from the default stands out.

    Example: penstock queues policy orders
    """
    with session.queue(queue) as source:
        found = source.policy()
    session.answer({"name": queue, "policy": found}, policy_view(found))


def pause(session: CliSession, queue: QueueName) -> None:
    """Pause a queue: receives return nothing until resume; sends and settlements go on.

    Example: penstock pause orders
    """
    with session.queue(queue) as source:
        source.pause()
    session.answer({"queue": queue, "paused": True}, sentence(f"Queue {queue} is paused."))


def resume(session: CliSession, queue: QueueName) -> None:
    """Resume a paused queue.

    Example: penstock resume orders
    """
    with session.queue(queue) as source:
        source.resume()
    session.answer({"queue": queue, "paused": False}, sentence(f"Queue {queue} goes on."))


def seek(
    session: CliSession,
    queue: QueueName,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group to move.", show_default=False)],
    target: Annotated[
        Any,
        typer.Argument(
            metavar="TARGET",
            parser=seek_target,
            help="start, end, a position, or a time with a zone.",
            show_default=False,
        ),
    ],
    yes: Yes = False,
) -> None:
    """Move a group's cursor, to receive messages again or to skip them.

    Example: penstock seek orders analytics start
    """
    with session.queue(queue) as source:
        if session.is_interactive and not yes:
            _ask_about_seek(session, source.preview_seek(group, target), group)
        position = source.seek(group, target)
    document = {"queue": queue, "group": group, "position": position}
    session.answer(document, sentence(f"Group {group} of queue {queue} goes on after position {position}."))


def flush(session: CliSession, queue: QueueName, yes: Yes = False) -> None:
    """Remove everything in a queue for good; its policy stays.

    Example: penstock flush orders --yes
    """
    with session.queue(queue) as source:
        counts = "; ".join(_flushed(group, stats) for group, stats in source.stats().items())
        confirmed(session, yes, f"Remove everything in queue {shown(queue)} ({counts or 'no messages'}) for good?")
        count = source.flush()
    session.answer({"queue": queue, "flushed": count}, sentence(plural(count, "message"), f"removed from {queue}."))


def delete(session: CliSession, queue: QueueName, yes: Yes = False) -> None:
    """Remove a queue itself: its messages, groups, batches and policy.

    Example: penstock queues delete orders --yes
    """
    with session.queue(queue) as source:
        confirmed(session, yes, f"Delete queue {shown(queue)} with {plural(source.count(), 'message')} for good?")
        count = source.delete()
    session.answer({"queue": queue, "deleted": count}, sentence(f"Queue {queue} is deleted,", plural(count, "message")))


def _ask_about_retention(session: CliSession, preview: RetentionPreview, queue: str) -> None:
    """Ask at a terminal before a shorter retention removes messages; a script is not asked."""
    concerned = [
        plural(count, noun)
        for count, noun in ((preview.dead_letters, "dead letter"), (preview.messages, "finished message"))
        if count
    ]
    question = f"{' and '.join(concerned)} of queue {shown(queue)} would be removed for good sooner. Go on?"
    if concerned and not session.confirm(question):
        raise Refused("the policy is as it was")


def _ask_about_seek(session: CliSession, preview: SeekPreview, group: str) -> None:
    effects = []
    if preview.passed_by:
        effects.append(f"pass by {plural(preview.passed_by, 'unread message')}")
    if preview.read_again:
        effects.append(f"hand out {plural(preview.read_again, 'message')} again")
    question = f"Moving group {shown(group)} to position {preview.position} would {' and '.join(effects)}. Go on?"
    if effects and not session.confirm(question):
        raise Refused("the group stays where it is")


def _flushed(group: str, stats: GroupStats) -> str:
    live = stats.available + stats.redo + stats.in_progress + stats.held
    return f"group {shown(group)}: {plural(live, 'live message')}, {plural(stats.dead, 'dead letter')}"


def _parse_fields(fields: list[str]) -> dict[str, object]:
    """`name=value`, the value a number, a duration, true, false, none, or a word."""
    parsed: dict[str, object] = {}
    for name, value in parse_pairs(fields, "FIELD=VALUE", "FIELD=VALUE").items():
        parsed[name] = _parse_value(value)
        if name.endswith("_seconds") and isinstance(parsed[name], str):
            parsed[name] = _parse_seconds(name, value)
    return parsed


def _parse_seconds(name: str, value: str) -> float:
    try:
        return seconds_of(value)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None


def _parse_value(value: str) -> object:
    if value.lower() in ("none", "null"):
        return None
    try:
        parsed: object = msgspec.json.decode(value.lower() if value.lower() in ("true", "false") else value)
    except msgspec.DecodeError:
        return value
    return parsed


def _queues_view(queues: list[QueueInfo]) -> Table | Text:
    if not queues:
        return Text("No queues.", style="dim")
    columns = ("queue", "groups", "delivery", "retries", "lease", "made")
    made = table(*columns, numbers=("retries", "lease"), folds=("groups",), spares=("made",))
    for queue in queues:
        name = cell(queue.name)
        if queue.policy.paused:
            name.append(" (paused)", style="yellow")
        retries = "no limit" if queue.policy.max_retries is None else f"{queue.policy.max_retries:,}"
        made.add_row(
            name,
            cell(", ".join(queue.groups)),
            queue.policy.delivery,
            retries,
            f"{queue.policy.lease_seconds:g} s",
            cell(queue.created_at),
        )
    return made
