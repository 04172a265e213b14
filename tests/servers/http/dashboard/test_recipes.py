"""The lines that a page offers for copying are run as they are, for a name that tries to break out of them."""

from __future__ import annotations

import ast
import html
import os
import re
import shutil
import subprocess
import sys
import uuid

import apsw
import httpx
import pytest

import penstock
from penstock.servers.http.dashboard import quotes
from penstock.servers.http.router import path_to
from tests.servers.http.dashboard.conftest import Served

NASTY = 'it\'s "$(touch /tmp/penstock-broken)" `id`; -- \\ %s \u202e ü 🚰'
NAMES = [
    "plain",
    "with space",
    NASTY,
    "'",
    '"',
    "\\",
    "$HOME",
    "a'b\"c`d\\e",
    "-n",
    "\u202e",
    "\U0001f6b0",
    "!x",
    "~",
    "*",
]


@pytest.fixture(scope="module")
def sent(served: Served) -> tuple[str, str]:
    with penstock.connect(served.url) as store:
        name = f"{NASTY} {uuid.uuid4()}"
        return name, store.queue(name).send({"was": "here"})


def _recipes(http: httpx.Client, *segments: str) -> dict[str, str]:
    text = http.get(path_to({}, *segments)).text
    labels = re.findall(r'<label for="recipe-\d">([^<]*)</label>', text)
    blocks = re.findall(r'<div class="tab tab-\d"><pre><code>(.*?)</code></pre>', text, re.DOTALL)
    return dict(zip(labels, map(html.unescape, blocks), strict=True))


def _run(served: Served, *words: str) -> str:
    environment = {**os.environ, "PENSTOCK_URL": served.url}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python(served: Served, http: httpx.Client, sent: tuple[str, str]) -> None:
    name, message_id = sent
    said = _run(served, sys.executable, "-c", _recipes(http, "queues", name, "messages", message_id)["Python"])
    assert message_id in said
    assert "it is ready and has not been received" in said


def test_sql(served: Served, http: httpx.Client, sent: tuple[str, str]) -> None:
    name, message_id = sent
    connection = apsw.Connection(str(served.path), flags=apsw.SQLITE_OPEN_READONLY)
    for segments in (("queues", name), ("queues", name, "messages", message_id)):
        rows = connection.execute(_recipes(http, *segments)["SQL"]).fetchall()
        assert len(rows) == 1
        assert b'{"was":"here"}' in rows[0]
    connection.close()


def test_curl(served: Served, http: httpx.Client, sent: tuple[str, str]) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    name, message_id = sent
    said = _run(served, "bash", "-c", _recipes(http, "queues", name, "messages", message_id)["curl"])
    assert '{"was":"here"}' in said
    assert "it is ready and has not been received" in said
    assert '"available":1' in _run(served, "bash", "-c", _recipes(http, "queues", name)["curl"].splitlines()[-1])


def test_redis_cli(served: Served, http: httpx.Client, sent: tuple[str, str]) -> None:
    if shutil.which("redis-cli") is None:
        pytest.skip("redis-cli is not installed (Debian: apt-get install redis-tools)")
    name, message_id = sent
    text = _recipes(http, "queues", name, "messages", message_id)["redis-cli"].replace("4777", str(served.port))
    said = _run(served, "bash", "-c", text)
    assert message_id in said
    assert "it is ready and has not been received" in said


@pytest.mark.parametrize("name", NAMES)
def test_every_language_reads_the_name_back(name: str) -> None:
    assert ast.literal_eval(quotes.python(name)) == name
    said = subprocess.run(
        ["bash", "-c", f"printf %s {quotes.shell(name)}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert said.stdout.decode() == name
    connection = apsw.Connection(":memory:")
    assert connection.execute(f"select {quotes.sqlite(name)}").fetchall() == [(name,)]
    connection.close()
    assert _as_postgres_reads(quotes.postgres(name)) == name
    for quoted in (quotes.python(name), quotes.shell(name), quotes.sqlite(name), quotes.postgres(name)):
        assert quoted.isprintable(), "what is shown is what is copied"


def _as_postgres_reads(literal: str) -> str:
    """By the rules of its manual, for lack of a server here: 4.1.2.1 and 4.1.2.2."""
    if literal.startswith("E'"):
        text = literal[2:-1].replace("''", "'")
        return re.sub(r"\\(\\|U([0-9a-f]{8}))", lambda one: chr(int(one[2], 16)) if one[2] else "\\", text)
    return literal[1:-1].replace("''", "'")
