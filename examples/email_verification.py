"""Email verification: a code that arrives late is worse than none.

The queue delivers at most once, and every message has a deadline. A code that was not sent in time is not sent any
more, so somebody who asked for another one does not get the old one afterwards.

    penstock worker examples.email_verification:app
"""

from __future__ import annotations

import smtplib
from datetime import UTC, datetime, timedelta
from typing import TypedDict

import penstock

VALID = timedelta(minutes=10)
QUEUE = "email-verification"


class Code(TypedDict):
    to: str
    code: str


app = penstock.App()
sent: list[Code] = []


def ask_for_code(store: penstock.Store, to: str, code: str, now: datetime | None = None) -> str:
    """Called by the web application."""
    deadline = (now or datetime.now(UTC)) + VALID
    return store.queue(QUEUE).send({"to": to, "code": code}, deadline_at=deadline)


@app.handler(QUEUE, delivery="at_most_once", max_retries=3, max_seconds=30)
def send_code(code: Code) -> None:
    try:
        deliver(code)
    except smtplib.SMTPRecipientsRefused as refused:
        raise penstock.Reject(f"{code['to']} does not exist") from refused
    except OSError as busy:
        # A retry is said, never assumed: a worker that vanishes here leaves a dead letter, not a second mail.
        raise penstock.Retry(15, "the mail server is busy") from busy


def deliver(code: Code) -> None:
    """Stands for a mail server."""
    if code["to"].endswith(".invalid"):
        raise smtplib.SMTPRecipientsRefused({code["to"]: (550, b"no such user")})
    if code["to"].startswith("busy"):
        raise ConnectionRefusedError("try later")
    sent.append(code)
