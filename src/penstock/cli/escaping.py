"""Text that came from outside, made safe and visible on a terminal.

A queue name, a payload or a reason may hold anything: escape codes that repaint the screen, marks that turn the
reading direction, a line break that fakes a row. All of them are shown as what they are.
"""

from __future__ import annotations

import unicodedata

from rich.text import Text

# Marks that reorder the text around them on screen; other format characters (in emoji, in scripts) are harmless.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSAFE = ("Cc", "Cs", "Zl", "Zp")


def escaped(value: object, style: str = "") -> Text:
    """For tables and sentences; never read as markup."""
    return Text(escape(str(value)), style=style)


def escape(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in _REORDERING or unicodedata.category(character) in _UNSAFE:
        return character.encode("unicode_escape").decode("ascii")
    return character
