"""ack, nak, reject, reschedule and extend, each in another process run than the receive."""

from __future__ import annotations

import pytest

from tests.cli.cli_runner import Cli

UNKNOWN_ID = "019a8c3e-7b2d-7abc-8def-00000000002a"


@pytest.mark.parametrize(
    ("words", "state", "counted"),
    [
        (["ack"], "succeeded", "done"),
        (["nak"], "held", "held"),
        (["nak", "--delay-seconds", "0"], "ready", "redo"),
        (["reject"], "rejected", "dead"),
        (["reschedule"], "held", "held"),
        (["reschedule", "--delay-seconds", "0"], "ready", None),
    ],
)
def test_each_settlement_reports_the_new_state(cli: Cli, words: list[str], state: str, counted: str | None) -> None:
    cli.send("orders", "1")
    message_id, token = cli.receive("orders")
    verb, *options = words
    document = cli.json(verb, "orders", message_id, "--token", token, *options, "--reason", "because")
    assert document == {"id": message_id, "queue": "orders", "group": "default", "state": state}
    (group,) = cli.json("status", "orders")
    assert group["in_progress"] == 0
    if counted is not None:
        assert group[counted] == 1
    assert cli.json("audit", "orders", message_id)[-1]["reason"] == "because"


def test_groups_settle_independently(cli: Cli) -> None:
    cli.send("orders", "1")
    message_id, token = cli.receive("orders", "--group", "other")
    said = cli("ack", "orders", message_id, "--token", token, "--group", "other").stdout
    assert f"{message_id} is now succeeded in group other" in said
    groups = {group["group"]: group for group in cli.json("status", "orders")}
    assert (groups["other"]["done"], groups["default"]["done"]) == (1, 0)


def test_a_stale_token_is_refused(cli: Cli) -> None:
    cli.send("orders", "1")
    message_id, token = cli.receive("orders")
    cli("ack", "orders", message_id, "--token", token)
    for verb in ("nak", "reject", "reschedule"):
        assert "lost" in cli.error(verb, "orders", message_id, "--token", token)
    assert "lost" in cli.error("extend", "orders", message_id, "--token", token, "--seconds", "9")
    assert "lost" in cli.error("ack", "orders", message_id, "--token", str(int(token) + 1))


def test_the_same_ack_again_is_harmless(cli: Cli) -> None:
    cli.send("orders", "1")
    message_id, token = cli.receive("orders")
    for _ in range(2):
        assert cli.json("ack", "orders", message_id, "--token", token)["state"] == "succeeded"


def test_extend_moves_the_end_of_the_lease(cli: Cli) -> None:
    cli.send("orders", "1")
    (delivery,) = cli.json("receive", "orders", "--lease-seconds", "10")
    words = ("extend", "orders", delivery["id"], "--token", str(delivery["token"]), "--seconds", "500")
    assert cli.json(*words)["lease_ends_at"] > delivery["lease_ends_at"]


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["ack", "orders", UNKNOWN_ID, "--token", "1"], UNKNOWN_ID, 1),
        (["ack", "orders", "seven", "--token", "1"], "id must be a UUID", 1),
        (["ack", "ordres", UNKNOWN_ID, "--token", "1"], "did you mean 'orders'?", 1),
        (["extend", "orders", UNKNOWN_ID, "--token", "1", "--seconds", "0"], "seconds must be more than 0", 1),
        (["ack", "orders", UNKNOWN_ID, "--token", "9" * 30], "token must be between 0 and", 1),
        (["ack", "orders", UNKNOWN_ID], "Missing option '--token'", 2),
        (["ack", "orders", UNKNOWN_ID, "--token", "x"], "'x' is not a whole number", 2),
    ],
)
def test_invalid_input_is_an_error(cli: Cli, words: list[str], told: str, code: int) -> None:
    cli.send("orders", "1")
    assert told in cli.error(*words, code=code)
