"""Errors of Spark in one line: what went wrong in our own words, where Spark wraps them in pages of traces."""

from __future__ import annotations

import re

from penstock.domain.errors import PenstockError, PipelineError

_OURS = re.compile(r"^penstock\.domain\.errors\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception): .+)$", re.MULTILINE)


def as_error(what: str, error: BaseException) -> PenstockError:
    """An error of Penstock for one of Spark; one of our own stays itself."""
    if isinstance(error, PenstockError):
        return error
    text = str(error).strip()
    found = _OURS.findall(text) or _PYTHON.findall(text) or text.splitlines()[:1] or [type(error).__name__]
    return PipelineError(f"{what}: {found[-1]}")
