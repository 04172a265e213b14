"""Confirmation of irreversible actions by signed tokens.

The question carries a token made from the action, its object and the user; the request must bring it back. A token is
valid for that action only, and for a limited time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

from penstock.servers.http.problems import Problem

VALID_SECONDS = 600
_key = secrets.token_bytes(32)


def mark_of(*words: str) -> str:
    return _made(int(time.time()) // VALID_SECONDS, words)


def check(mark: str | None, *words: str) -> None:
    """Valid in the period it was made in, and in the next."""
    period = int(time.time()) // VALID_SECONDS
    given = (mark or "").encode()
    if not any(hmac.compare_digest(_made(one, words).encode(), given) for one in (period, period - 1)):
        raise Problem(409, "nothing was done: the question was about something else or is too old; ask again")


def _made(period: int, words: tuple[str, ...]) -> str:
    # Each word with its length, so that no two lists of words have the same digest.
    text = "".join(f"{len(word)}:{word}" for word in (str(period), *words))
    return hmac.new(_key, text.encode(), hashlib.sha256).hexdigest()[:32]
