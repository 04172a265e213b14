"""Inline commands: words between blanks, with quotes as in a shell (`"a\\x00b"`, `'it\\'s'`)."""

from __future__ import annotations

import re

# One word: quoted with escapes, quoted plainly, or bare. A quote must be followed by a blank or the end.
WORD = re.compile(rb"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\'|[^'])*)'|([^\s"']\S*))(?=\s|\Z)""", re.DOTALL)
ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_line(line: bytes) -> list[bytes] | None:
    """The words, or None when quotes do not match."""
    words: list[bytes] = []
    at = 0
    line = line.strip()
    while at < len(line):
        match = WORD.match(line, at)
        if match is None:
            return None
        escaped, plain, bare = match.groups()
        if escaped is not None:
            words.append(ESCAPE.sub(_unescape, escaped))
        elif plain is not None:
            words.append(plain.replace(b"\\'", b"'"))
        else:
            words.append(bare)
        at = match.end()
    return words


def _unescape(match: re.Match[bytes]) -> bytes:
    letter: bytes = match.group(1)
    if len(letter) == 3:
        return bytes.fromhex(letter[1:].decode())
    return NAMED.get(letter, letter)
