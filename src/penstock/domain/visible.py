"""Text that came from outside, made visible: a queue name, a payload or a reason may hold anything.

Escape codes that repaint a terminal, marks that turn the reading direction, a line break that fakes a row: all of them
are shown as what they are.
"""

from __future__ import annotations

import unicodedata

# Marks that reorder the text around them on screen; other format characters (in emoji, in scripts) are harmless.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSAFE = ("Cc", "Cs", "Zl", "Zp")


def visible(text: str, keep: str = "") -> str:
    """The text with its unsafe characters spelled out, but for those in `keep`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character in keep else _spelled(character) for character in text)


def _spelled(character: str) -> str:
    if character in _REORDERING or unicodedata.category(character) in _UNSAFE:
        return character.encode("unicode_escape").decode("ascii")
    return character
