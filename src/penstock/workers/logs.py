"""Logging of a worker: records written while a handler runs carry the message that it handles."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from penstock.client.slot import current_slot
from penstock.workers.source import about_delivery

Format = Literal["text", "json"]
FIELDS = ("queue", "group", "message_id", "attempt", "consumer", "trace_id")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(about)s"


class MessageFilter(logging.Filter):
    """Adds the message that is being handled, if any, to log records. Add it to your own logging handlers:
    `handler.addFilter(penstock.workers.logs.MessageFilter())`."""

    def filter(self, record: logging.LogRecord) -> bool:
        slot = current_slot.get()
        delivery = None if slot is None else slot.delivery
        if delivery is not None:
            for name, value in about_delivery(delivery).items():
                if not hasattr(record, name):
                    setattr(record, name, value)
        about = {name: getattr(record, name) for name in FIELDS if getattr(record, name, None) is not None}
        record.about = f" ({', '.join(f'{name}={value}' for name, value in about.items())})" if about else ""
        return True


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                document[name] = value
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(document, enc_hook=str).decode()


def write_logs(form: Format, level: str) -> None:
    """Send all log records of the program to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(MessageFilter())
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
