"""Spark errors as one-line Penstock errors, without Java stack traces."""

from __future__ import annotations

import re

from penstock.domain.errors import GroupMisused, InvalidInput, NotFound, PenstockError, PipelineError

_LOST = re.compile(r"ExecutorLostFailure \((.+)\) Reason: (.+)")
_OURS = re.compile(r"^penstock\.domain\.errors\.(\w+): (.+)$", re.MULTILINE)
_RECENT = re.compile(r"most recent failure: Lost task [^\n]*?\): (?:\w+\.)*(.+)")
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception): .+)$", re.MULTILINE)

# Errors that a retry would meet again.
FINAL = (GroupMisused, InvalidInput, NotFound)


def as_error(what: str, error: BaseException) -> PenstockError:
    """Convert a Spark error. A Penstock error raised in a task keeps its type where that matters, and its message."""
    if isinstance(error, PenstockError):
        return error
    text = str(error).strip()
    if ours := _OURS.findall(text):
        kind, message = ours[-1]
        return next((one for one in FINAL if one.__name__ == kind), PipelineError)(f"{what}: {message}")
    if lost := _LOST.findall(text):
        return PipelineError(f"{what}: {lost[-1][0]}: {lost[-1][1].strip()}")
    found = _PYTHON.findall(text) or _RECENT.findall(text) or text.splitlines()[:1] or [type(error).__name__]
    return PipelineError(f"{what}: {found[-1]}")
