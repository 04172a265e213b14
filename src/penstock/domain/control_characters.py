"""Escaping of untrusted text (queue names, payloads, reasons) before it is shown.

Terminal control sequences, bidirectional marks and line separators are replaced by their escape sequences.
"""

from __future__ import annotations

import unicodedata

# Bidirectional marks. Other format characters (in emoji, in scripts) are harmless.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSAFE = ("Cc", "Cs", "Zl", "Zp")


def escape_controls(text: str, keep: str = "") -> str:
    """Replace unsafe characters by their escape sequences, except those in `keep`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character in keep else _escape_one(character) for character in text)


def _escape_one(character: str) -> str:
    if character in _REORDERING or unicodedata.category(character) in _UNSAFE:
        return character.encode("unicode_escape").decode("ascii")
    return character
