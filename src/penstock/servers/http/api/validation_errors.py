"""Sentences for msgspec's validation errors: where the value is, what is expected, and what was given."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from penstock.domain.validation import shown

EXPECTED = re.compile(
    r"Expected `(?P<kind>[^`]+)`(?: (?P<bound>>=|<=|>|<) (?P<limit>[-0-9.e+]+))?(?:, got `(?P<got>[^`]+)`)?"
    r"(?: - at `\$(?P<path>[^`]*)`)?",
    re.DOTALL,
)
# Other messages of the decoder about times.
NO_TIME = re.compile(r"Invalid RFC3339 encoded datetime|Expected `datetime` with a timezone component")
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
    "datetime": "a time with a zone such as 2026-01-31T12:00:00Z",
}
BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]")


def refusal(message: str, body: bytes) -> str | None:
    """The sentence for a decoder's error; None if its own text will do."""
    found = EXPECTED.fullmatch(NO_TIME.sub("Expected `datetime`", message))
    if found is None:
        return None
    path = found["path"] or ""
    place = path.removeprefix(".") or "the body"
    return f"{place} must be {_wanted(found)}{_not(found, path, body)}"


def bound(message: str) -> str | None:
    """The violated bound of a number, as `at least 1`; None for other errors."""
    found = EXPECTED.match(message)
    return None if found is None or not found["bound"] else _wanted(found)


def _wanted(found: re.Match[str]) -> str:
    if found["bound"]:
        return f"{BOUNDS[found['bound']]} {found['limit']}"
    kinds = found["kind"].split(" | ")
    # An integer may be written as 7.0.
    kinds = [kind for kind in kinds if kind != "float"] if "int" in kinds else kinds
    return " or ".join(KINDS.get(kind, kind) for kind in kinds)


def _not(found: re.Match[str], path: str, body: bytes) -> str:
    """Show scalar values; of others, show the type."""
    if found["got"] in ("object", "array"):
        return f", not {KINDS[found['got']]}"
    value = _value(path, body)
    if value is None:
        return f", not {KINDS.get(found['got'], found['got'])}" if found["got"] else ""
    return f", not {shown(value) if isinstance(value, str) else msgspec.json.encode(value).decode()}"


def _value(path: str, body: bytes) -> Any:
    """The value at a path of the body; None for null, and if the path or the rest of the body is invalid."""
    steps = list(STEP.finditer(path))
    if "".join(step[0] for step in steps) != path:
        return None
    try:
        value: Any = msgspec.json.decode(body)
        for step in steps:
            value = value[step[1]] if step[1] else value[int(step[2])]
    except (msgspec.DecodeError, RecursionError, KeyError, IndexError, TypeError):
        return None
    return value
