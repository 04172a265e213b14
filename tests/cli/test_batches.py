"""batch and schedule."""

from __future__ import annotations

import re

import pytest

from tests.cli.cli_runner import Cli


def test_a_batch_from_beginning_to_end(cli: Cli) -> None:
    for payload in ("1", "2"):
        cli.send("reports", payload, "--batch", "nightly")
    assert cli.json("batch", "set-end", "reports", "nightly", '{"all": "done"}')["state"] == "open"
    assert cli.json("receive", "reports", "--limit", "9") == []
    assert cli.json("batch", "start", "reports", "nightly")["state"] == "running"
    assert [one["payload"] for one in cli.json("receive", "reports", "--limit", "9", "--ack")] == [1, 2]
    batch = cli.json("batch", "show", "reports", "nightly")
    assert (batch["state"], batch["remaining"], batch["finished"]) == ("finished", 0, 2)
    assert [one["payload"] for one in cli.json("receive", "reports", "--limit", "9")] == [{"all": "done"}]


def test_a_cancelled_batch_sends_its_abort_message(cli: Cli) -> None:
    cli.send("reports", "1", "--batch", "nightly")
    cli("batch", "set-abort", "reports", "nightly", "called off", "--text")
    assert cli.json("batch", "cancel", "reports", "nightly")["state"] == "cancelled"
    (delivery,) = cli.json("receive", "reports", "--limit", "9")
    assert delivery["content_type"] == "text/plain"


def test_a_send_to_a_batch_that_has_ended_is_refused_until_another_is_open(cli: Cli) -> None:
    cli.send("reports", "1", "--batch", "nightly")
    for _ in range(2):
        assert cli.json("batch", "cancel", "reports", "nightly")["state"] == "cancelled"
    assert "penstock batch open" in cli.error("send", "reports", "2", "--batch", "nightly")
    assert cli.json("batch", "open", "reports", "nightly")["state"] == "open"
    assert cli.json("batch", "open", "reports", "nightly")["state"] == "open"
    cli.send("reports", "3", "--batch", "nightly")
    assert cli.json("batch", "start", "reports", "nightly")["total"] == 1
    assert len(cli.json("batch", "list", "reports")) == 2


def test_batches_are_listed(cli: Cli) -> None:
    cli.send("reports", "1", "--batch", "nightly")
    cli.send("reports", "1", "--batch", "weekly")
    assert {one["name"] for one in cli.json("batch", "list", "reports")} == {"nightly", "weekly"}
    assert re.search(r"nightly\s+open\s+1\s+1\s+0", cli("batch", "list", "reports").stdout)


def test_an_unknown_batch_is_an_error(cli: Cli) -> None:
    cli.send("reports", "1")
    for verb in ("show", "start", "cancel"):
        assert "nightly" in cli.error("batch", verb, "reports", "nightly")


def test_the_bare_word_batch_shows_its_commands(cli: Cli) -> None:
    assert "set-end" in cli.bare("batch").stdout


def test_a_schedule_is_made_listed_paused_and_removed(cli: Cli) -> None:
    words = ("schedule", "add", "nightly", "0 3 * * *", "reports", '{"report": "sales"}')
    made = cli.json(*words, "--timezone", "Europe/Berlin", "--catch-up", "one")
    assert (made["cron"], made["timezone"], made["catch_up"]) == ("0 3 * * *", "Europe/Berlin", "one")
    assert made["payload"] == {"report": "sales"}
    assert made["next_at"].endswith("Z")
    assert [one["name"] for one in cli.json("schedule")] == ["nightly"]
    assert cli.json("schedule", "pause", "nightly")["paused"] is True
    assert re.search(r"nightly\s+0 3 \* \* \*\s+Europe/Berlin\s+reports\s+one\s+paused", cli("schedule", "list").stdout)
    assert cli.json("schedule", "resume", "nightly")["paused"] is False
    assert cli.json("schedule", "remove", "nightly") == {"name": "nightly", "removed": True}
    assert cli.json("schedule", "list") == []
    assert "No schedules." in cli("schedule").stdout


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["add", "x", "every day", "reports", "1"], "cron 'every day' does not parse", 1),
        (["add", "x", "0 3 * * *", "reports", "1", "--timezone", "Berlin"], "timezone 'Berlin' is unknown", 1),
        (["add", "x", "0 3 * * *", "reports", "1", "--catch-up", "some"], "one of skip, one, all", 1),
        (["add", "x", "0 3 * * *", "reports", "word"], "is not JSON", 1),
        (["add", "x", "0 3 * * *", "reports"], "give a payload", 2),
        (["remove", "x"], "'x'", 1),
        (["pause", "x"], "'x'", 1),
        (["ad"], "Did you mean 'add'", 2),
    ],
)
def test_invalid_schedules_are_errors(cli: Cli, words: list[str], told: str, code: int) -> None:
    cli("migrate")
    assert told in cli.error("schedule", *words, code=code)


def test_a_batch_with_members_in_another_queue(cli: Cli) -> None:
    cli("batch", "set-end", "reports", "nightly", '"all done"')
    cli.send("emails", "1", "--batch", "nightly", "--batch-queue", "reports")
    assert cli.json("receive", "emails", "--limit", "9") == []
    assert cli.json("batch", "start", "reports", "nightly")["remaining"] == 1
    cli.json("receive", "emails", "--ack")
    assert [one["payload"] for one in cli.json("receive", "reports")] == ["all done"]
    assert "batch_queue" in cli.error("send", "emails", "2", "--batch-queue", "reports")
