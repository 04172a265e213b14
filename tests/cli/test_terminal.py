"""Terminals of 80 columns: tables without cut cells, durations, completion and help."""

from __future__ import annotations

import fcntl
import inspect
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from rich.markup import render
from typer.main import get_command

import penstock
from penstock.cli.program import app
from tests.cli.cli_runner import Cli

QUEUE = "a-queue-with-a-rather-long-name-for-orders"
CONSUMER = "worker-on-a-host-with-a-long-name-1234"
COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """`penstock WORDS...` in a pseudo-terminal of 80 columns."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/store.db"

    def __call__(self, *words: str, columns: int = 80) -> str:
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
        environment |= {"PENSTOCK_URL": self.url, "TERM": "xterm"}
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *words], env=environment, stdin=child, stdout=child, stderr=child
        )
        os.close(child)
        shown = COLOURS.sub("", _read_all(parent).decode())
        assert process.wait(60) == 0, shown
        lines = [line for line in shown.splitlines() if not line.startswith("Settle each")]
        assert max(len(line) for line in lines) <= columns, shown
        return shown


def _read_all(terminal: int) -> bytes:
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # raised on Linux when the last process has closed the terminal
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    return shown


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
def store(terminal: Terminal) -> penstock.Store:
    return penstock.connect(terminal.url)


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_ids_and_tokens_are_not_cut(terminal: Terminal, store: penstock.Store, columns: int) -> None:
    queue = store.queue(QUEUE)
    ids = queue.send_many([{"text": "x" * 50}] * 4)
    (delivery,) = queue.receive(1, consumer=CONSUMER, lease_seconds=3600)
    (doomed,) = queue.receive(1)
    doomed.reject("no such customer " * 10)
    if columns == 80:
        assert delivery.id in terminal("leases", QUEUE)
        assert str(delivery.token) in terminal("leases", QUEUE)
        assert all(one in terminal("peek", QUEUE) for one in ids[2:])
        assert doomed.id in terminal("dead", QUEUE)
        received = terminal("receive", QUEUE, "--lease-seconds", "5m")
        assert ids[2] in received
        assert re.search(r"\b[0-9]{16}\b", received)
    for words in (["leases", QUEUE], ["peek", QUEUE], ["dead", QUEUE], ["status"], ["receive", QUEUE]):
        assert "…" not in terminal(*words, columns=columns)


def test_columns_without_room_are_left_out_and_named(terminal: Terminal, store: penstock.Store) -> None:
    queue = store.queue(QUEUE)
    queue.send({})
    (delivery,) = queue.receive(1, consumer=CONSUMER, lease_seconds=3600)
    narrow, wide = terminal("leases", QUEUE), terminal("leases", QUEUE, columns=130)
    assert "No room for: ends in." in narrow
    assert "ends in" in wide
    assert "No room" not in wide
    assert delivery.id in narrow
    assert delivery.id in wide


@pytest.mark.parametrize("words", [["status"], ["queues", "list"]])
def test_a_name_keeps_its_width_and_other_columns_are_left_out(
    terminal: Terminal, store: penstock.Store, words: list[str]
) -> None:
    name = "orders-" + "x" * 63
    store.queue(name).send({})
    shown = terminal(*words)
    assert re.search(rf"^{name}\b", shown, re.MULTILINE), shown
    assert "No room for: " in shown
    assert name in terminal(*words, columns=70)


@pytest.mark.parametrize("words", [["status"], ["queues", "list"]])
def test_only_a_name_wider_than_the_terminal_wraps(terminal: Terminal, store: penstock.Store, words: list[str]) -> None:
    name = "".join(chr(ord("a") + place % 26) for place in range(90))
    store.queue(name).send({})
    lines = terminal(*words).splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith(name[:80]))
    assert lines[place + 1].strip() == name[80:]
    assert "No room for: " in lines[place + 2]


def test_leaving_out_a_wide_column_makes_room_for_others(terminal: Terminal, store: penstock.Store) -> None:
    store.queue("orders", primary_group="g" * 200).send({})
    shown = terminal("status", columns=100)
    assert "No room for: group." in shown
    assert all(header in shown for header in ("available", "lag", "oldest", "dead"))


@pytest.mark.parametrize("columns", [20, 30, 40])
def test_headers_break_between_words_only(terminal: Terminal, store: penstock.Store, columns: int) -> None:
    queue = store.queue("orders")
    queue.send_many([{"text": "x" * 50}] * 3)
    queue.receive(1)[0].reject("no such customer")
    queue.receive(1, consumer=CONSUMER)
    store.schedule("nightly", "0 3 * * *", "orders", {})
    known = "queue group groups available redo in progress held done failed attempts dead lag oldest delivery retries "
    known += "lease made schedule cron timezone catch up next message id consumer outcome state token try running"
    for words in (["status"], ["queues", "list"], ["schedule", "list"], ["leases", "orders"], ["dead", "orders"]):
        shown = terminal(*words, columns=columns)
        headers = shown[: shown.index("─")]
        assert set(headers.split()) <= set(known.split()), shown


def test_counts_are_not_cut(terminal: Terminal, store: penstock.Store) -> None:
    queue = store.queue(QUEUE)
    queue.send_many([b""] * 123_456)
    queue.ack_many(queue.receive(12_345))
    shown = terminal("status", columns=90)
    assert re.search(r"\b111,111\b", shown)
    assert re.search(r"\b12,345\b", shown)


# -- durations -------------------------------------------------------------------------------------------------------


def test_options_in_seconds_take_durations(cli: Cli) -> None:
    message = cli.send("orders", "1", "--delay-seconds", "2h", "--ttl-seconds", "1d")
    found = cli.store().queue("orders").find(message)
    assert (found.available_at - found.created_at).total_seconds() == 7200
    assert found.expires_at is not None
    assert (found.expires_at - found.created_at).total_seconds() == 86_400
    cli("queues", "declare", "orders", "lease_seconds=5m", "ttl_seconds=none")
    assert cli.json("queues", "policy", "orders")["policy"]["lease_seconds"] == 300


def test_a_wrong_duration_is_named(cli: Cli) -> None:
    error = cli.error("send", "orders", "1", "--delay-seconds", "5x", code=2)
    assert "'5x' is not a duration: use seconds such as 90, or units such as 500ms, 30s, 5m, 2h" in error
    flag = cli.error("serve", "--http-session-seconds", "soon")
    assert "--http-session-seconds: 'soon' is not a duration" in flag


def test_every_option_in_seconds_has_the_same_parser() -> None:
    options = [one for command in _commands() for one in command.params if one.name.endswith("seconds")]
    own = [one for one in options if not one.name.startswith(("resp_", "http_"))]
    assert len(own) > 10
    assert {one.metavar for one in own} == {"DURATION"}


# -- completion ------------------------------------------------------------------------------------------------------


def test_bash_completes_names_of_queues(terminal: Terminal, store: penstock.Store, tmp_path: Path) -> None:
    for name in ("orders", "orders-eu", "mail", "needs quotes"):
        store.queue(name).send({})
    assert _completed(terminal, tmp_path, "penstock peek or") == ["orders", "orders-eu"]
    assert _completed(terminal, tmp_path, "penstock status orders-") == ["orders-eu"]
    assert _completed(terminal, tmp_path, "penstock peek n") == []
    assert _completed(terminal, tmp_path, "penstock queues policy m") == ["mail"]


def test_completion_makes_no_store(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    assert _completed(terminal, tmp_path, "penstock peek ") == []
    assert not (tmp_path / "store.db").exists()


def _completed(terminal: Terminal, folder: Path, line: str) -> list[str]:
    """The completions of bash, by the script that `penstock --show-completion` prints."""
    program = folder / "penstock"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock.cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    script = f"""
        eval "$(_PENSTOCK_COMPLETE=source_bash penstock)"
        COMP_WORDS=({line}{' ""' if line.endswith(" ") else ""})
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        $(complete -p penstock | sed 's/.*-F \\([^ ]*\\).*/\\1/') penstock
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PENSTOCK_URL": terminal.url, "PATH": f"{folder}:{os.environ['PATH']}"}
    shown = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stderr == ""
    return shown.stdout.split()


# -- help ------------------------------------------------------------------------------------------------------------


def test_help_of_serve_names_the_tables_of_the_settings_file(terminal: Terminal) -> None:
    shown = terminal("serve", "--help")
    assert "and [resp] in the settings file" in shown
    assert "and [http] in the settings file" in shown


def test_no_text_of_help_is_taken_for_markup() -> None:
    """Whatever typer gives to rich comes out as it was written."""
    assert str(render("[resp] swallowed")) != "[resp] swallowed", "rich reads no markup any more"
    for command in _commands():
        own = inspect.cleandoc(command.callback.__doc__ or "") if command.callback else ""
        if own and command.help:
            assert str(render(command.help)) == own
        for one in command.params:
            for text in (getattr(one, "help", None), getattr(one, "rich_help_panel", None)):
                assert text is None or re.findall(r"\[[^]]*\]", str(render(text))) == re.findall(r"\[[^]]*\]", text)


def _commands() -> list[Any]:
    found = [get_command(app)]
    for command in found:
        found += getattr(command, "commands", {}).values()
    return found
