"""Patterns for names: `*` matches any characters, `?` one.

Matching backtracks to the last star only, so the time is at most the product of both lengths for any pattern.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any


class _AnyCharacter:
    def __contains__(self, _: object) -> bool:
        return True


ANY = _AnyCharacter()
# The characters that match at a place; None for a star.
Token = Container[Any] | None


def matches(pattern: str, name: str) -> bool:
    return match([None if one == "*" else ANY if one == "?" else one for one in pattern], name)


def match(tokens: Sequence[Token], text: Sequence[Any]) -> bool:
    at, place, star, resume = 0, 0, -1, 0
    while place < len(text):
        token = tokens[at] if at < len(tokens) else ()
        if token is None:
            star, resume = at, place
            at += 1
        elif text[place] in token:
            at += 1
            place += 1
        elif star >= 0:
            # Extend the match of the last star by one character.
            resume += 1
            at, place = star + 1, resume
        else:
            return False
    return all(token is None for token in tokens[at:])
