"""Tables that fit the terminal without cutting cells: text wraps, and columns without room are left out and named below
the table."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from penstock.domain.control_characters import escape_controls

# A column of text is not made narrower than this while another column can be left out instead.
NARROWEST_TEXT = 10


class TerminalTable(Table):
    """`folds` are the columns of text that may wrap, `spares` those that are left out before all others, in this order.
    The first column names the row: it is never left out, and wraps only where it alone is wider than the terminal."""

    def __init__(self, title: str | None, folds: Sequence[str], spares: Sequence[str]) -> None:
        super().__init__(
            box=box.SIMPLE_HEAD,
            title=None if title is None else Text(escape_controls(title)),
            title_justify="left",
            title_style="bold",
            header_style="bold",
            pad_edge=False,
            padding=(0, 1, 0, 0),
            show_edge=False,
        )
        self._folds = frozenset(folds)
        self._spares = tuple(spares)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left_out = self._left_out(options.max_width)
        columns = self._without(left_out)
        gap, widths = self._layout(columns, options.max_width) or (1, [options.max_width])
        fitted = copy.copy(self)
        fitted.padding = (0, gap - 1, 0, 0)  # in addition to the one column that the box draws
        fitted.columns = [
            replace(one, _index=place, no_wrap=False, overflow="fold", width=width)
            for place, (one, width) in enumerate(zip(columns, widths, strict=True))
        ]
        yield from Table.__rich_console__(fitted, console, options)
        if left_out:
            names = ", ".join(left_out)
            yield Text(f"No room for: {names}. Widen the terminal, or use --json.", style="dim")

    def _left_out(self, available: int) -> list[str]:
        """The columns without room: the spares first, then the others from the right."""
        others = [str(one.header) for one in reversed(self.columns[1:]) if one.header not in self._spares]
        left_out: list[str] = []
        for name in (*self._spares, *others):
            if self._layout(self._without(left_out), available) is not None:
                break
            left_out.append(name)
        for name in reversed(left_out):  # leaving out a wide column last may have made room for earlier ones
            fewer = [one for one in left_out if one != name]
            if self._layout(self._without(fewer), available) is not None:
                left_out = fewer
        return left_out

    def _without(self, left_out: Sequence[str]) -> list[Column]:
        return [one for one in self.columns if one.header not in left_out]

    def _layout(self, columns: list[Column], available: int) -> tuple[int, Sequence[int]] | None:
        """The gap between columns and their widths, or None when they do not fit. Only text is broken into lines."""
        for gap, wraps_headers in ((2, False), (1, False), (1, True)):
            widths = {str(one.header): _width(one, wraps_headers) for one in columns}
            texts = {name: width for name, width in widths.items() if name in self._folds}
            whole = sum(width for name, width in widths.items() if name not in texts)
            left = available - gap * (len(columns) - 1) - whole
            if left >= sum(min(width, NARROWEST_TEXT) for width in texts.values()):
                return gap, list((widths | _share(texts, left)).values())
        return None


def _width(column: Column, wraps_header: bool) -> int:
    """The width of the widest cell or of the header, which may wrap between its words."""
    header = str(column.header)
    heads = header.split() if wraps_header else [header]
    cells = [line for cell in column.cells for line in _lines(cell)]
    return max((Text(one).cell_len for one in (*heads, *cells)), default=1) or 1


def _lines(cell: object) -> list[str]:
    return (cell.plain if isinstance(cell, Text) else str(cell)).split("\n")


def _share(texts: dict[str, int], room: int) -> dict[str, int]:
    """Give narrow columns their width, and the others equal shares of the rest."""
    shares: dict[str, int] = {}
    for left, (name, width) in zip(
        range(len(texts), 0, -1), sorted(texts.items(), key=lambda one: one[1]), strict=True
    ):
        shares[name] = min(width, room // left)
        room -= shares[name]
    return shares
