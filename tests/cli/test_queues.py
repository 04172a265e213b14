"""queues, declare, policy, pause, resume, seek and flush."""

from __future__ import annotations

import re

import pytest

from tests.cli.cli_runner import Cli


def test_declare_sets_the_fields_given_and_keeps_the_others(cli: Cli) -> None:
    cli("queues", "declare", "orders", "lease_seconds=2.5", "max_retries=none")
    cli("queues", "declare", "orders", "delivery=at_most_once", "ordered=TRUE", "primary_group=main")
    policy = cli.json("queues", "policy", "orders")["policy"]
    assert (policy["lease_seconds"], policy["max_retries"], policy["backoff_factor"]) == (2.5, None, 2)
    assert (policy["delivery"], policy["ordered"], policy["primary_group"]) == ("at_most_once", True, "main")


@pytest.mark.parametrize(
    ("fields", "told", "code"),
    [
        (["lease_second=1"], "unknown policy field 'lease_second'; did you mean 'lease_seconds'?", 1),
        (["lease_seconds=soon"], "lease_seconds: 'soon' is not a duration", 1),
        (["paused=2"], "paused must be true or false", 1),
        (["lease_seconds"], "'lease_seconds' is not FIELD=VALUE", 2),
        (["shards=1", "shards=2"], "'shards' is given twice", 2),
        ([], "Missing argument 'FIELD=VALUE", 2),
    ],
)
def test_invalid_policy_fields_are_errors_and_create_no_queue(
    cli: Cli, fields: list[str], told: str, code: int
) -> None:
    assert told in cli.error("queues", "declare", "orders", *fields, code=code)
    assert not cli.path.exists()


def test_queues_lists_with_and_without_the_word(cli: Cli) -> None:
    cli("queues", "declare", "b", "max_retries=none")
    cli.send("a", "1")
    cli("pause", "b")
    assert [queue["name"] for queue in cli.json("queues")] == ["a", "b"]
    assert cli("queues").stdout == cli("queues", "list").stdout
    assert re.search(r"b \(paused\)\s+.*at_least_once\s+no limit\s+30 s", cli("queues").stdout)


def test_a_paused_queue_delivers_nothing(cli: Cli) -> None:
    cli.send("orders", "1")
    assert cli.json("pause", "orders") == {"queue": "orders", "paused": True}
    assert cli.json("receive", "orders") == []
    assert "goes on" in cli("resume", "orders").stdout
    assert len(cli.json("receive", "orders")) == 1


def test_seek_to_the_start_reads_again(cli: Cli) -> None:
    cli("send", "orders", "--lines", input="1\n2\n3")
    cli("receive", "orders", "--limit", "9", "--group", "other", "--ack")
    cli("seek", "orders", "other", "start")
    assert [one["payload"] for one in cli.json("peek", "orders", "--group", "other")] == [1, 2, 3]
    position = cli.json("seek", "orders", "other", "end")["position"]
    assert cli.json("peek", "orders", "--group", "other") == []
    assert cli.json("seek", "orders", "other", str(position - 1))["position"] == position - 1
    assert [one["payload"] for one in cli.json("peek", "orders", "--group", "other")] == [3]
    cli("seek", "orders", "other", "2001-01-01T00:00:00Z")
    assert len(cli.json("peek", "orders", "--group", "other")) == 3


def test_an_invalid_seek_target_is_an_error(cli: Cli) -> None:
    cli.send("orders", "1")
    told = cli.error("seek", "orders", "other", "back", code=2)
    assert "a position, a time, 'start' or 'end'" in told
    assert "'back'" in told
    assert "has no time zone" in cli.error("seek", "orders", "other", "2001-01-01", code=2)


def test_flush_refuses_without_a_person_and_without_yes(cli: Cli) -> None:
    cli.send("orders", "1")
    assert "say --yes" in cli.error("flush", "orders")
    assert len(cli.json("peek", "orders")) == 1


@pytest.mark.parametrize("words", [("flush", "orders"), ("purge", "orders"), ("queues", "delete", "orders")])
def test_a_script_removes_only_with_yes(cli: Cli, words: tuple[str, ...]) -> None:
    cli.send("orders", "1")
    assert "nothing was removed: say --yes" in cli.error(*words)
    cli(*words, "--yes")


def test_a_script_is_not_asked_about_the_effect_of_a_change(cli: Cli) -> None:
    """At a terminal each of these commands asks for confirmation."""
    queue = cli.store().queue("orders", history_seconds=3600)
    queue.receive(1, group="other")
    message = queue.send(1)
    for group in (None, "other"):
        queue.ack_many(queue.receive(1, group=group))
    assert queue.preview_retention(history_seconds=0).messages == 1
    assert queue.preview_seek("other", "start").read_again == 1
    assert cli.json("seek", "orders", "other", "start")["position"] < queue.find(message).position
    assert cli.json("queues", "declare", "orders", "history_seconds=0")["policy"]["history_seconds"] == 0
    queue.batch("nightly").send(2)
    assert cli.json("batch", "cancel", "orders", "nightly")["cancelled"] == 1


def test_flush_removes_everything(cli: Cli) -> None:
    cli("send", "orders", "--lines", input="1\n2")
    assert cli.json("flush", "orders", "--yes") == {"queue": "orders", "flushed": 2}
    assert cli.json("peek", "orders") == []
    assert "0 messages removed from orders" in cli("flush", "orders", "-y").stdout


@pytest.mark.parametrize("verb", ["pause", "resume", "flush"])
def test_a_mistyped_queue_is_not_made(cli: Cli, verb: str) -> None:
    cli.send("orders", "1")
    assert "did you mean 'orders'?" in cli.error(verb, "ordrs", *(["--yes"] if verb == "flush" else []))
    assert [queue["name"] for queue in cli.json("queues")] == ["orders"]
