"""dead, redrive, purge"""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from penstock.cli.format import cell, escaped, moment, plural, preview, sentence, table
from penstock.cli.options import Group, Limit, MessageIds, Outcome, QueueName, Yes
from penstock.cli.session import CliSession, confirmed, known_group
from penstock.client.documents import with_payload
from penstock.client.queue import MAX_LIMIT
from penstock.domain.control_characters import escape_controls
from penstock.domain.identity import check_id
from penstock.domain.results import DeadLetter
from penstock.domain.validation import shown

# Minimum terminal width for one line per dead letter.
WIDE = 140


def dead(
    session: CliSession, queue: QueueName, group: Group = None, outcome: Outcome = None, limit: Limit = 100
) -> None:
    """List messages that ended without success, newest first.

    Example: penstock dead orders --outcome failed
    """
    with session.queue(queue) as source:
        reader = None if group is None else known_group(source, group)
        letters = source.dead_letters(limit, reader, outcome)
    session.answer([with_payload(letter) for letter in letters], _letters_view(letters, session.console.width))


def redrive(
    session: CliSession,
    queue: QueueName,
    id: MessageIds = None,
    group: Group = None,
    outcome: Outcome = None,
    limit: Limit = MAX_LIMIT,
) -> None:
    """Send dead letters again: all of a group, or those chosen.

    Example: penstock redrive orders --outcome failed
    """
    with session.queue(queue) as source:
        reader = known_group(source, group)
        count = source.redrive(id or None, group=reader, outcome=outcome, limit=limit)
    document = {"queue": queue, "group": reader, "redriven": count}
    session.answer(document, sentence(plural(count, "dead letter"), f"sent again in group {reader}."))


def purge(
    session: CliSession,
    queue: QueueName,
    id: MessageIds = None,
    group: Group = None,
    outcome: Outcome = None,
    limit: Limit = MAX_LIMIT,
    yes: Yes = False,
) -> None:
    """Remove dead letters for good: all of a group, or those chosen.

    Example: penstock purge orders --outcome expired --yes
    """
    ids = [check_id(one) for one in id or []]
    with session.queue(queue) as source:
        reader = known_group(source, group)
        which = (
            plural(len(ids), "dead letter") if ids else f"all {outcome} dead letters" if outcome else "all dead letters"
        )
        confirmed(session, yes, f"Remove {which} of queue {shown(queue)} in group {shown(reader)} for good?")
        count = source.purge(ids or None, group=reader, outcome=outcome, limit=limit)
    document = {"queue": queue, "group": reader, "purged": count}
    session.answer(document, sentence(plural(count, "dead letter"), f"removed from group {reader}."))


def _letters_view(letters: list[DeadLetter], width: int) -> Table | Text:
    if not letters:
        return Text("No dead letters.", style="dim")
    return _wide_view(letters) if width >= WIDE else _narrow_view(letters)


def _wide_view(letters: list[DeadLetter]) -> Table:
    columns = ("id", "group", "outcome", "attempts", "died", "reason", "payload")
    made = table(*columns, numbers=("attempts",), folds=("group", "reason", "payload"), spares=("group",))
    for letter in letters:
        made.add_row(
            cell(letter.id),
            escaped(letter.group),
            escaped(letter.outcome),
            cell(letter.attempts),
            cell(letter.died_at),
            cell(letter.reason),
            preview(letter.payload, 80),
        )
    return made


def _narrow_view(letters: list[DeadLetter]) -> Table:
    """Several lines per dead letter, so that ids and reasons are not cut."""
    made = table(
        "id",
        "outcome",
        "attempts",
        "reason, payload",
        numbers=("attempts",),
        folds=("reason, payload",),
        spares=("attempts",),
    )
    for letter in letters:
        made.add_row(
            Text.assemble(letter.id, "\n", (moment(letter.died_at), "dim")),
            escaped(letter.outcome),
            cell(letter.attempts),
            Text.assemble(
                cell(letter.reason),
                "\n",
                preview(letter.payload, 80),
                (f"\ngroup {escape_controls(letter.group)}", "dim"),
            ),
        )
    return made
