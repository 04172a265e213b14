"""The stack trace of an error as operators see it: the frames of the handler, without those of the worker."""

from __future__ import annotations

import traceback
from pathlib import Path

from penstock.domain.settlement import Signal, reason_text

OWN = str(Path(__file__).parent)
# The end of a long trace says where it happened.
MAX_CHARACTERS = 8_000


def trace_of(error: BaseException | None) -> str | None:
    """None for what is no fault: a signal of the handler, or no error at all."""
    if error is None or (isinstance(error, Signal) and error.__cause__ is None):
        return None
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(OWN):
        frames = frames.tb_next
    return shortened("".join(traceback.format_exception(type(error), error, frames)))


def shortened(text: str) -> str:
    whole = reason_text(text) or ""
    if len(whole) <= MAX_CHARACTERS:
        return whole
    return "…\n" + whole[-MAX_CHARACTERS:].partition("\n")[2]
