"""Patterns for names: `*` matches any characters, `?` one.

Matching backtracks to the last star only, so the time is at most the product of both lengths for any pattern.
"""

from __future__ import annotations


def matches(pattern: str, name: str) -> bool:
    at, place, star, resume = 0, 0, -1, 0
    while place < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, place
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[place]):
            at += 1
            place += 1
        elif star >= 0:
            # Extend the match of the last star by one character.
            resume += 1
            at, place = star + 1, resume
        else:
            return False
    return all(letter == "*" for letter in pattern[at:])
