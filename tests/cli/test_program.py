"""The whole program: help, usage errors, URLs, and errors for people and programs."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3

import pytest

from penstock.cli.program import FAMILIES, PANELS
from tests.cli.cli_runner import Cli

SINGLE = [run.__name__ for commands in PANELS.values() for run in commands]
COMMANDS = [[name] for name in SINGLE] + [
    [family, word] for family, (_, _, words) in FAMILIES.items() for word in words
]
# The commands of the design that this version has.
PROMISED = (
    "send receive ack nak reject reschedule extend peek messages status info audit explain dead redrive purge batch "
    "schedule leases consumers queues flush pause resume seek serve worker pipeline sweep migrate doctor repair bench "
    "chaos demo version"
)
READING = [
    ["status"],
    ["info", "q"],
    ["peek", "q"],
    ["messages", "q", "--state", "held"],
    ["queues", "delete", "q", "--yes"],
    ["schedule", "run", "s"],
    ["audit", "q", "019a8c3e-7b2d-7abc-8def-00000000002a"],
    ["explain", "q", "019a8c3e-7b2d-7abc-8def-00000000002a"],
    ["dead", "q"],
    ["receive", "q"],
    ["leases", "q"],
    ["consumers"],
    ["queues"],
    ["queues", "policy", "q"],
    ["batch", "list", "q"],
    ["schedule", "list"],
    ["doctor"],
    ["repair"],
    ["sweep"],
    ["redrive", "q"],
    ["purge", "q", "--yes"],
    ["flush", "q", "--yes"],
    ["pause", "q"],
    ["ack", "q", "019a8c3e-7b2d-7abc-8def-00000000002a", "--token", "1"],
]


def test_without_arguments_help_lists_every_command(cli: Cli) -> None:
    page = cli.bare().stdout
    assert page.strip() == cli.bare("--help").stdout.strip()
    for panel in PANELS:
        assert f"─ {panel} ─" in page
    assert set(PROMISED.split()) == {*SINGLE, *FAMILIES}
    for name in PROMISED.split():
        assert f"│ {name} " in page


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example(cli: Cli, words: list[str]) -> None:
    page = cli.bare(*words, "--help").stdout
    assert f"Example: penstock {' '.join(words)}" in " ".join(page.split())
    for option in ("--url", "--config", "--json"):
        assert option in page
    assert not re.search(r"<\w+(\[\w+\])?>", page), "types are Python's business"


@pytest.mark.parametrize(("typed", "meant"), [("stauts", "status"), ("recieve", "receive"), ("schedul", "schedule")])
def test_an_unknown_command_suggests_the_nearest(cli: Cli, typed: str, meant: str) -> None:
    result = cli.bare(typed, code=2)
    assert f"No such command '{typed}'. Did you mean '{meant}'" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_only_a_send_creates_a_store(cli: Cli, words: list[str]) -> None:
    error = cli.error(*words)
    assert f"there is no store at {cli.url} (from --url)" in error
    assert "penstock send" in error
    assert not cli.path.exists()


def test_reading_another_programs_database_creates_no_tables(cli: Cli) -> None:
    with contextlib.closing(sqlite3.connect(cli.path)) as theirs:
        theirs.execute("create table customer (name text)")
        assert "there is a database but no store in it" in cli.error("status")
        cli.send("orders", "1")
        assert len(cli.json("status")) == 1
        tables = {name for (name,) in theirs.execute("select name from sqlite_schema where type = 'table'")}
    assert "customer" in tables


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nowhere", "is not a store URL"),
        ("sqllite:///x.db", "this version knows sqlite, postgresql, postgres, postgresql+embedded, "),
        ("sqllite:///x.db", "; did you mean 'sqlite'?"),
        ("sqlite://x.db", "has no path"),
        ("sqlite:///missing/folder/x.db", "missing/folder"),
    ],
)
def test_an_invalid_url_is_an_error(cli: Cli, url: str, told: str) -> None:
    result = cli.bare("send", "orders", "1", "--url", url, code=1)
    assert told in result.stderr
    assert result.stdout == ""


def test_a_file_that_is_not_a_store_is_an_error_and_unchanged(cli: Cli) -> None:
    text = "these are my notes\n" * 100
    cli.path.write_text(text)
    assert "store.db" in cli.error("status")
    assert "store.db" in cli.error("send", "orders", "1")
    assert cli.path.read_text() == text


def test_a_password_is_never_shown(cli: Cli) -> None:
    for url in (
        "sqlite://me:ge:hei@m@host",
        "postgresql://me:geheim@host/db",
        "me:geheim@host/db",
        "postgresql://127.0.0.1:1/db?user=me&password=geheim",
        "postgresql//me:geheim@host/db",
        "postgres:/me:geheim@host/db",
        "postgresql://me:geheim@[::1/db",
        "postgresql://me:geheim%zz@host/db",
        "postgresql://me:ge/heim@host/db",
        "postgresql://me:ge?heim=1@host/db",
        "postgresql://me:ge@heim@127.0.0.1:1/db",
        "postgresql+embedded://me:geheim@host",
        "host=db user=me password=geheim",
        "mysql://me:geheim@host/db",
    ):
        for words in ([], ["--json"]):
            assert "hei" not in cli.bare("status", "--url", url, *words, code=1).output
    assert "me:***@host/db" in cli.bare("status", "--url", "me:geheim@host/db", code=1).output


def test_errors_are_json_documents_with_json(cli: Cli) -> None:
    cli.send("orders", "1")
    refused = cli("peek", "ordres", "--json", code=1)
    assert refused.stdout == ""
    assert json.loads(refused.stderr) == {
        "error": "NotFound",
        "message": "there is no queue 'ordres'; did you mean 'orders'?",
    }
    misused = cli("send", "--json", code=2)
    assert json.loads(misused.stderr) == {"error": "UsageError", "message": "Missing argument 'QUEUE'"}


def test_options_may_stand_before_the_command(cli: Cli) -> None:
    cli.send("orders", "1")
    before = cli.bare("--url", cli.url, "--json", "queues", "list").stdout
    assert json.loads(before)[0]["name"] == "orders"
    assert cli.bare("queues", "--json", "--url", cli.url, "list").stdout == before
    assert cli.bare("--url", "sqlite:///other.db", "queues", "list", "--url", cli.url, "--json").stdout == before


@pytest.mark.parametrize(
    "words", [["status"], ["queues"], ["dead", "q"], ["peek", "q"], ["receive", "q"], ["info", "q"]]
)
def test_control_characters_from_users_are_escaped(cli: Cli, words: list[str]) -> None:
    nasty = "\x1b[31mred\x07 \u202eevil [bold]x[/bold] :smile: \x9b2J"
    with cli.store() as store:
        queue = store.queue("q", max_retries=0)
        for _ in range(2):
            queue.send(nasty.encode(), created_by="n")
        (delivery,) = queue.receive(group="[red]g[/red] :smile:")
        delivery.reject(nasty)
        store.queue("[bold]b[/bold]\u202e").send(1)
    page = cli(*words).stdout
    assert not set(page) & {"\x1b", "\x07", "\x9b", "\u202e"}
    if words[0] in ("status", "queues"):
        assert "[bold]b[/bold]\\u202e" in page
        assert "[red]g[/red] :smile:" in page
    if words[0] in ("dead", "peek", "receive"):
        assert "\\x1b[31mred\\x07 \\u202eevil [bold]x[/bold] :smile: \\x9b2J" in page


def test_an_error_escapes_what_it_quotes(cli: Cli) -> None:
    cli.send("orders", "1")
    error = cli.error("peek", "\x1b[31m[bold]")
    assert "\x1b" not in error
    assert "[bold]" in error
