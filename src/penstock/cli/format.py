"""Output for people: tables, and short forms of times, durations and payloads. Untrusted text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from penstock.cli.tables import TerminalTable
from penstock.domain.control_characters import escape_controls as escape

NONE = "-"
# Tables show the beginning of a payload; --json has all of it.
PREVIEW_CHARACTERS = 200


def escaped(value: object, style: str = "") -> Text:
    """Text with control characters escaped, and without markup."""
    return Text(escape(str(value)), style=style)


def table(
    *columns: str,
    title: str | None = None,
    numbers: Sequence[str] = (),
    folds: Sequence[str] = (),
    spares: Sequence[str] = (),
) -> TerminalTable:
    """Make a table. Columns in `numbers` are right-aligned, those in `folds` may wrap. On a narrow terminal those in
    `spares` are left out first, in this order, then others from the right."""
    made = TerminalTable(title, folds, spares)
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left")
    return made


def fields_table(fields: dict[str, object]) -> Table:
    """A table with a row per field, for a single object."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True, overflow="fold")
    made.add_column(overflow="fold")
    for name, value in fields.items():
        made.add_row(name, value if isinstance(value, Text) else cell(value))
    return made


def cell(value: object) -> Text:
    """Format a value for a table."""
    if value is None or value == "":
        return Text(NONE, style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, datetime):
        return Text(moment(value))
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, float):
        return Text(f"{value:,.10g}")
    return escaped(value)


def moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def clock_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03}"


def duration(seconds: float | None) -> Text:
    """Two units at most: 0.25 s, 12 s, 3 m 20 s, 5 h, 9 d 3 h."""
    if seconds is None:
        return cell(None)
    if seconds < 10:
        return Text(f"{seconds:.3g} s")
    whole = int(seconds)
    for unit, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // part
            return Text(f"{whole // length:,} {unit}" + (f" {rest} {smaller}" if rest else ""))
    return Text(f"{whole} s")


def preview(payload: bytes, limit: int = PREVIEW_CHARACTERS) -> Text:
    """The beginning of a payload: as text when it is text, else as hexadecimal digits."""
    head = payload[: limit * 4]  # enough for `limit` characters, which take four bytes at most
    text = _as_text(head, whole=len(head) == len(payload))
    if text is None:
        text = head.hex(" ")
    if len(text) <= limit and len(head) == len(payload):
        return Text(text) if text else Text("(empty)", style="dim")
    return Text.assemble(text[:limit], (f"… ({len(payload):,} bytes)", "dim"))


def _as_text(head: bytes, whole: bool) -> str | None:
    try:
        return escape(head.decode())
    except UnicodeDecodeError as error:
        cut_character = not whole and error.start > len(head) - 4
        return escape(head[: error.start].decode()) if cut_character else None


def marked(lines: Iterable[tuple[Text, Text]]) -> Table:
    """Lines with a mark before each; long lines wrap with a hanging indent."""
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for mark, line in lines:
        made.add_row(mark, line)
    return made


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def sentence(*parts: object) -> Text:
    """Join the parts with spaces, escaped."""
    return escaped(" ".join(str(part) for part in parts))
