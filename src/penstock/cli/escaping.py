"""Text that came from outside, made safe for a terminal."""

from __future__ import annotations

from rich.text import Text

from penstock.domain.visible import visible


def escaped(value: object, style: str = "") -> Text:
    """For tables and sentences; never read as markup."""
    return Text(escape(str(value)), style=style)


def escape(text: str) -> str:
    return visible(text)
