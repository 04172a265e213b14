"""receive and peek."""

from __future__ import annotations

import base64

from tests.cli.cli_runner import Cli


def test_receive_prints_what_settling_needs(cli: Cli) -> None:
    message_id = cli.send("orders", '{"order": 1}')
    (delivery,) = cli.json("receive", "orders", "--consumer", "me", "--lease-seconds", "60")
    assert delivery["id"] == message_id
    assert delivery["payload"] == {"order": 1}
    assert (delivery["attempt"], delivery["group"], delivery["consumer"]) == (1, "default", "me")
    assert isinstance(delivery["token"], int)
    assert delivery["lease_ends_at"].endswith("Z")


def test_the_table_shows_the_same(cli: Cli) -> None:
    message_id = cli.send("orders", '{"order": 1}')
    table = cli("receive", "orders").stdout
    assert message_id in table
    assert '{"order": 1}' in table


def test_a_leased_message_is_not_received_again(cli: Cli) -> None:
    cli.send("orders", "1")
    assert len(cli.json("receive", "orders")) == 1
    assert cli.json("receive", "orders") == []
    assert "Nothing to receive" in cli("receive", "orders").stdout


def test_limit_and_group(cli: Cli) -> None:
    cli("send", "orders", "--lines", input="1\n2\n3")
    assert len(cli.json("receive", "orders", "--limit", "2")) == 2
    assert [one["payload"] for one in cli.json("receive", "orders", "--group", "other", "--limit", "9")] == [1, 2, 3]


def test_ack_settles_what_was_printed(cli: Cli) -> None:
    cli("send", "orders", "--lines", input="1\n2")
    assert len(cli.json("receive", "orders", "--limit", "2", "--ack")) == 2
    (group,) = cli.json("status", "orders")
    assert (group["done"], group["in_progress"]) == (2, 0)


def test_bytes_are_given_as_base64(cli: Cli) -> None:
    cli("send", "orders", "-", "--bytes", input=b"\xff\x00")
    (delivery,) = cli.json("receive", "orders")
    assert base64.b64decode(delivery["payload_base64"]) == b"\xff\x00"
    assert delivery["content_type"] == "application/octet-stream"
    assert "payload" not in delivery


def test_a_payload_with_a_wrong_json_content_type_is_shown_as_base64(cli: Cli) -> None:
    with cli.store() as store:
        store.queue("orders").send(b"{oops", content_type="application/json")
    (delivery,) = cli.json("receive", "orders")
    assert base64.b64decode(delivery["payload_base64"]) == b"{oops"


def test_peek_receives_nothing(cli: Cli) -> None:
    cli("send", "orders", "--lines", input="1\n2\n3")
    for _ in range(2):
        assert [message["payload"] for message in cli.json("peek", "orders", "--limit", "2")] == [1, 2]
    (group,) = cli.json("status", "orders")
    assert (group["available"], group["in_progress"]) == (3, 0)


def test_peek_at_an_unknown_queue_suggests_the_nearest(cli: Cli) -> None:
    cli.send("orders", "1")
    assert "there is no queue 'ordres'; did you mean 'orders'?" in cli.error("peek", "ordres")


def test_receive_from_an_unknown_queue_answers_404_and_creates_none(cli: Cli) -> None:
    cli.send("orders", "1")
    assert "there is no queue 'ordres'; did you mean 'orders'?" in cli.error("receive", "ordres")
    assert [one["name"] for one in cli.json("queues")] == ["orders"]


def test_an_invalid_limit_is_an_error(cli: Cli) -> None:
    cli.send("orders", "1")
    assert "limit must be between 1 and" in cli.error("receive", "orders", "--limit", "0")
