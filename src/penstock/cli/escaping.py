"""Text that came from outside, made safe and visible on a terminal."""

from __future__ import annotations

from rich.text import Text

from penstock.domain.visible import visible as escape

__all__ = ["escape", "escaped"]


def escaped(value: object, style: str = "") -> Text:
    """For tables and sentences; never read as markup."""
    return Text(escape(str(value)), style=style)
