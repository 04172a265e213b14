"""Making two runs comparable: what must differ from run to run gets a name that does not."""

from __future__ import annotations

import re
from typing import Any

from tests.servers.clients.wire import Reply

# Milliseconds of this age, a dash, a number. The special ids (0-0, 1-1) are shorter and stay as they are.
STREAM_ID = re.compile(r"\d{13}-\d+")


class Names:
    """Entry ids become id1, id2, … in the order in which they are first met."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        match value:
            case str():
                return STREAM_ID.sub(lambda found: self._known.setdefault(found[0], f"id{len(self._known) + 1}"), value)
            case bytes():
                return self.of(value.decode("latin-1"))
            case Reply():
                return (value.kind, self.of(value.value))
            case dict():
                return {self.of(key): self.of(item) for key, item in value.items()}
            case list() | tuple():
                return [self.of(item) for item in value]
            case _:
                return value
