"""send: single messages, lines of standard input, and invalid payloads."""

from __future__ import annotations

import uuid

import pytest

from tests.cli.cli_runner import Cli

CHOSEN_ID = "019a8c3e-7b2d-7abc-8def-00000000002a"


def test_the_printed_id_names_the_message_that_was_sent(cli: Cli) -> None:
    message_id = cli.send("orders", '{"order": 1}')
    assert str(uuid.UUID(message_id)) == message_id
    with cli.store() as store:
        message = store.queue("orders").find(message_id)
    assert message.json() == {"order": 1}
    assert message.content_type == "application/json"


def test_every_option_reaches_the_message(cli: Cli) -> None:
    document = cli.json(
        *(
            "send",
            "orders",
            "[1]",
            "--priority",
            "3",
            "--ttl-seconds",
            "60",
            "--deadline-at",
            "2031-01-02T03:04:05+02:00",
        ),
        *("--address", "a", "--key", "k", "--header", "x=1", "--header", "y=a=b", "--id", CHOSEN_ID.upper()),
        *("--created-by", "me"),
    )
    assert document == {"queue": "orders", "id": CHOSEN_ID}
    (message,) = cli.json("peek", "orders")
    assert message["priority"] == 3
    assert message["deadline_at"] == "2031-01-02T01:04:05Z"
    assert message["headers"] == {"x": "1", "y": "a=b"}
    assert (message["address"], message["key"], message["created_by"]) == ("a", "k", "me")
    with cli.store() as store:
        sent = store.queue("orders").find(CHOSEN_ID)
    assert sent.expires_at is not None
    assert (sent.expires_at - sent.created_at).total_seconds() == 60


def test_a_delayed_message_is_held(cli: Cli) -> None:
    cli.send("orders", "1", "--delay-seconds", "100")
    (group,) = cli.json("status", "orders")
    assert (group["held"], group["available"]) == (1, 0)


def test_the_same_id_again_is_the_same_message(cli: Cli) -> None:
    for payload in ("1", "2"):
        assert cli.send("orders", payload, "--id", CHOSEN_ID) == CHOSEN_ID
    assert [message["payload"] for message in cli.json("peek", "orders")] == [1]


def test_json_arrives_digit_for_digit(cli: Cli) -> None:
    cli.send("orders", '{"amount": 1.10, "big": 123456789012345678901234567890}')
    result = cli("peek", "orders", "--json")
    assert '"payload":{"amount": 1.10, "big": 123456789012345678901234567890}' in result.stdout


@pytest.mark.parametrize(
    ("words", "content_type", "payload"),
    [
        (["--text"], "text/plain", b"line one\nline two"),
        (["--bytes"], "application/octet-stream", b"\xff\x00\xfe"),
        ([], "application/json", b'{"a":1}'),
    ],
)
def test_a_dash_reads_standard_input(cli: Cli, words: list[str], content_type: str, payload: bytes) -> None:
    cli("send", "orders", "-", *words, input=payload)
    with cli.store() as store:
        (message,) = store.queue("orders").peek()
    assert (message.payload, message.content_type) == (payload, content_type)


def test_lines_are_sent_in_order_without_the_empty_ones(cli: Cli) -> None:
    ids = cli.json("send", "orders", "--lines", "--priority", "2", input='{"n":1}\n\n  {"n":2}  \r\n3')["ids"]
    messages = cli.json("peek", "orders")
    assert [message["id"] for message in messages] == ids
    assert [message["payload"] for message in messages] == [{"n": 1}, {"n": 2}, 3]
    assert {message["priority"] for message in messages} == {2}


def test_one_bad_line_is_named_and_nothing_is_sent(cli: Cli) -> None:
    assert "line 3 is not JSON: 'nope'" in cli.error("send", "orders", "--lines", input="1\n\nnope\n4\n")
    assert not cli.path.exists()


def test_a_payload_that_is_not_json_says_what_to_do(cli: Cli) -> None:
    error = cli.error("send", "orders", "hello")
    assert "'hello' is not JSON" in error
    assert "--text" in error
    assert "--bytes" in error
    assert not cli.path.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["orders"], "give a payload, or - to read it"),
        (["orders", "1", "--header", "x"], "'x' is not NAME=VALUE"),
        (["orders", "1", "--header", "x=1", "--header", "x=2"], "'x' is given twice"),
        (["orders", "1", "--priority", "high"], "'high' is not a whole number"),
        (["orders", "1", "--deadline-at", "tomorrow"], "'tomorrow' is not a time such as"),
        (["orders", "1", "--deadline-at", "2031-01-02T03:04:05"], "has no time zone: add Z"),
        (["orders", "1", "--text", "--bytes"], "either --text or --bytes"),
        (["orders", "1", "--lines"], "takes its payloads from standard input"),
        (["orders", "--lines", "--id", CHOSEN_ID], "belong to one message"),
        (["orders", "--lines", "--text"], "every line is JSON"),
        (["orders", "1", "--prioriti", "1"], "--priority"),
        (["orders", "1", "--ttl-seconds", "nan"], "'nan' is not a duration"),
    ],
)
def test_usage_errors_exit_with_code_2(cli: Cli, words: list[str], told: str) -> None:
    assert told in cli.error("send", *words, code=2)
    assert not cli.path.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["", "1"], "queue is empty"),
        (["orders", "1", "--priority", "-1"], "priority must be between"),
        (["orders", "1", "--id", "7"], "id must be a UUID"),
        (["orders", "1", "--address", "a\tb"], "control character"),
    ],
)
def test_wrong_values_name_the_value(cli: Cli, words: list[str], told: str) -> None:
    assert told in cli.error("send", *words)


def test_a_live_address_is_refused(cli: Cli) -> None:
    first = cli.send("orders", "1", "--address", "a")
    assert first in cli.error("send", "orders", "2", "--address", "a")


def test_a_payload_too_large_is_refused(cli: Cli) -> None:
    cli("queues", "declare", "orders", "max_payload_bytes=3")
    assert "payload has 4 bytes: this queue takes at most 3" in cli.error("send", "orders", "1234")
