"""Every client behind one small face: give it a command, get the reply as it told it.

A speaker is a program in the client's own language that holds one connection. It reads one JSON list of words per line
and writes one JSON reply per line, `{"reply": ...}` or `{"error": "..."}`. Maps are written as flat lists, because some
clients hand them over like that; bytes are written as Latin-1 text.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import pytest

HERE = Path(__file__).parent
NODE = HERE / "node"
# Where make puts the older client: it cannot live in the environment that has the newer one.
REDIS_PY_7 = Path(sys.prefix) / "clients" / "redis-py-7"
ANSWER_SECONDS = 30.0


class ClientError(Exception):
    """What the client raised for an error reply."""


class Speaker:
    """One client with one connection, in a process of its own."""

    def __init__(self, words: list[str], environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )

    def __call__(self, *words: str | bytes | float) -> Any:
        self.say(*words)
        return self.hear()

    def say(self, *words: str | bytes | float) -> None:
        """Without waiting for the answer, which `hear` brings."""
        assert self._process.stdin is not None
        self._process.stdin.write(self._line([_text(word) for word in words]))
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        # A client that hangs must fail the test and say so; closing the pipe under a reader is how a read is ended.
        alarm = threading.Timer(ANSWER_SECONDS, self._process.kill)
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError(f"the client ended: {self._process.stderr.read().decode(errors='replace')}")
        return self._reply(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self, words: list[str]) -> bytes:
        return json.dumps(words).encode() + b"\n"

    def _reply(self, line: bytes) -> Any:
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer["reply"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


class CliSpeaker(Speaker):
    """redis-cli, fed through its standard input; it tells replies as JSON by itself."""

    def _line(self, words: list[str]) -> bytes:
        return " ".join(_quoted(word) for word in words).encode() + b"\n"

    def _reply(self, line: bytes) -> Any:
        # It passes bytes above 127 through as they are.
        text = line.decode("latin-1")
        if text.startswith("error:"):
            raise ClientError(json.loads(text.removeprefix("error:")))
        return _flat(json.loads(text))


def _text(word: str | bytes | float) -> str:
    return word.decode("latin-1") if isinstance(word, bytes) else str(word)


def _quoted(word: str) -> str:
    """As redis-cli reads it: everything that is not plain as \\xHH."""
    return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\x{ord(c):02x}" for c in word) + '"'


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return [part for pair in value.items() for part in (pair[0], _flat(pair[1]))]
    if isinstance(value, list):
        return [_flat(item) for item in value]
    return value


class Connect(Protocol):
    """Makes a connection, with the default user's password where there is one."""

    def __call__(self, port: int, password: str | None = None) -> Speaker: ...


def redis_cli(protocol: int) -> Connect:
    def connect(port: int, password: str | None = None) -> Speaker:
        need("redis-cli", "Debian: apt-get install redis-tools")
        known = {} if password is None else {"REDISCLI_AUTH": password}
        return CliSpeaker(["redis-cli", "-p", str(port), f"-{protocol}", "--json"], known)

    return connect


def redis_py(version: int, protocol: int) -> Connect:
    def connect(port: int, password: str | None = None) -> Speaker:
        words = [sys.executable, str(HERE / "redis_py_program.py"), str(port), str(protocol)]
        return Speaker([*words, *_given(password)], redis_py_environment(version))

    return connect


def redis_py_environment(version: int) -> dict[str, str]:
    """How a Python program gets this version of redis-py."""
    if version == 7:
        if not REDIS_PY_7.exists():
            pytest.skip(f"redis-py 7 is not in {REDIS_PY_7} (make test puts it there)")
        return {"PYTHONPATH": str(REDIS_PY_7)}
    return {}


def node(program: str) -> Connect:
    def connect(port: int, password: str | None = None) -> Speaker:
        return Speaker(node_words(program, port, *_given(password)))

    return connect


def _given(password: str | None) -> list[str]:
    return [] if password is None else [password]


def node_words(program: str, *words: object) -> list[str]:
    need("node", "Node.js 20 or newer")
    if not (NODE / "node_modules").exists():
        pytest.skip("the Node clients are not installed (make test installs them with npm ci)")
    return ["node", str(NODE / program), *map(str, words)]


def need(program: str, where: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed ({where})")


SPEAKERS: dict[str, Connect] = {
    "redis-cli RESP2": redis_cli(2),
    "redis-cli RESP3": redis_cli(3),
    "redis-py 7 RESP2": redis_py(7, 2),
    "redis-py 7 RESP3": redis_py(7, 3),
    "redis-py 8 RESP2": redis_py(8, 2),
    "redis-py 8 RESP3": redis_py(8, 3),
    "ioredis": node("commands_ioredis.mjs"),
    "node-redis": node("commands_node_redis.mjs"),
}
