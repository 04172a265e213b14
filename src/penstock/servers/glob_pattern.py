"""Patterns for names: `*` any characters, `?` one, everything else itself.

Matched in one pass that remembers the last star only, so the time is at most the product of both lengths, whatever
the pattern looks like; there is no recursion and no regular expression to blow up.
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
            # What the last star stands for is one character longer.
            resume += 1
            at, place = star + 1, resume
        else:
            return False
    return all(letter == "*" for letter in pattern[at:])
