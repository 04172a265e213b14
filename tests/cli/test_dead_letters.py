"""dead, redrive and purge."""

from __future__ import annotations

import re

import pytest

from tests.cli.cli_runner import Cli


@pytest.fixture
def ids(cli: Cli) -> dict[str, str]:
    """Dead letters of queue orders: two rejected, one failed."""
    cli("queues", "declare", "orders", "max_retries=0")
    found = {}
    for name, verb in (("one", "reject"), ("two", "reject"), ("three", "nak")):
        cli.send("orders", f'"{name}"')
        message_id, token = cli.receive("orders")
        cli(verb, "orders", message_id, "--token", token, "--reason", f"because {name}")
        found[name] = message_id
    return found


def test_dead_letters_newest_first(cli: Cli, ids: dict[str, str]) -> None:
    letters = cli.json("dead", "orders")
    assert [letter["id"] for letter in letters] == [ids["three"], ids["two"], ids["one"]]
    assert [letter["outcome"] for letter in letters] == ["failed", "rejected", "rejected"]
    assert letters[0]["reason"] == "because three"
    assert letters[0]["payload"] == "three"


def test_the_table_shows_reason_and_payload(cli: Cli, ids: dict[str, str]) -> None:
    row = next(line for line in cli("dead", "orders").stdout.splitlines() if ids["three"] in line)
    assert re.search(r'default\s+failed\s+1\s+.*because three\s+"three"', row)


def test_on_a_narrow_screen_ids_stay_whole_and_nothing_is_cut(
    cli: Cli, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    lines = cli("dead", "orders").stdout.splitlines()
    place = next(number for number, line in enumerate(lines) if ids["three"] in line)
    assert re.search(r"failed\s+1\s+because", lines[place])
    assert re.search(r"Z\s+three", lines[place + 1])
    assert lines[place + 2].strip() == '"three"'
    assert [line.strip() for line in lines[place + 3 : place + 5]] == ["group", "default"]


def test_dead_letters_are_filtered(cli: Cli, ids: dict[str, str]) -> None:
    assert [one["id"] for one in cli.json("dead", "orders", "--outcome", "failed")] == [ids["three"]]
    assert len(cli.json("dead", "orders", "--limit", "2")) == 2
    assert len(cli.json("dead", "orders", "--group", "default")) == 3


@pytest.mark.parametrize("verb", ["dead", "redrive", "purge"])
@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["--outcome", "rejectd"], "'rejectd' is none of rejected, failed, lease_expired, expired, cancelled; did", 2),
        (["--outcome", "succeeded"], "'succeeded' is none of", 2),
        (["--group", "defualt"], "has no group 'defualt'; did you mean 'default'?", 1),
    ],
)
def test_mistyped_filters_are_errors(
    cli: Cli, ids: dict[str, str], verb: str, words: list[str], told: str, code: int
) -> None:
    assert told in cli.error(verb, "orders", *words, *(["--yes"] if verb == "purge" else []), code=code)
    assert len(cli.json("dead", "orders")) == len(ids)


def test_redrive_by_id(cli: Cli, ids: dict[str, str]) -> None:
    assert cli.json("redrive", "orders", ids["two"])["redriven"] == 1
    (delivery,) = cli.json("receive", "orders")
    assert (delivery["id"], delivery["attempt"]) == (ids["two"], 1)


def test_redrive_by_outcome(cli: Cli, ids: dict[str, str]) -> None:
    assert "2 dead letters sent again in group default." in cli("redrive", "orders", "--outcome", "rejected").stdout
    assert [one["id"] for one in cli.json("dead", "orders")] == [ids["three"]]


def test_purge_refuses_without_a_person_and_without_yes(cli: Cli, ids: dict[str, str]) -> None:
    assert "say --yes" in cli.error("purge", "orders")
    assert len(cli.json("dead", "orders")) == len(ids)


def test_purge_with_yes(cli: Cli, ids: dict[str, str]) -> None:
    assert cli.json("purge", "orders", ids["one"], ids["two"], "--yes")["purged"] == 2
    assert [one["id"] for one in cli.json("dead", "orders")] == [ids["three"]]
    assert "1 dead letter removed" in cli("purge", "orders", "-y").stdout
    assert cli.json("dead", "orders") == []
    assert "No dead letters." in cli("dead", "orders").stdout
