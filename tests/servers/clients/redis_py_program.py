"""A speaker (see client_programs.py) that uses redis-py: `redis_py_program.py PORT PROTOCOL [PASSWORD]`."""

from __future__ import annotations

import json
import sys
from typing import Any

import redis


def main() -> None:
    port, protocol = int(sys.argv[1]), int(sys.argv[2])
    password = sys.argv[3] if len(sys.argv) > 3 else None
    client = redis.Redis(host="127.0.0.1", port=port, protocol=protocol, password=password)
    for line in sys.stdin:
        words = [word.encode("latin-1") for word in json.loads(line)]
        try:
            answer = {"reply": told(client.execute_command(*words))}  # type: ignore[no-untyped-call]
        except redis.ResponseError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def told(reply: Any) -> Any:
    match reply:
        case bytes():
            return reply.decode("latin-1")
        case dict():
            return [part for pair in reply.items() for part in (told(pair[0]), told(pair[1]))]
        case list() | tuple():
            return [told(item) for item in reply]
        case _:
            return reply


if __name__ == "__main__":
    main()
