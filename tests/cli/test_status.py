"""status, info, audit, explain and consumers."""

from __future__ import annotations

import re

from tests.cli.cli_runner import Cli


def test_status_counts_every_queue_and_group(cli: Cli) -> None:
    cli("send", "orders", "--lines", input="1\n2\n3")
    cli.send("emails", "1")
    cli.receive("orders")
    cli("receive", "orders", "--group", "analytics", "--limit", "3", "--ack")
    rows = {(row["queue"], row["group"]): row for row in cli.json("status")}
    assert set(rows) == {("orders", "default"), ("orders", "analytics"), ("emails", "default")}
    assert (rows["orders", "default"]["available"], rows["orders", "default"]["in_progress"]) == (2, 1)
    assert rows["orders", "analytics"]["done"] == 3
    assert rows["emails", "default"]["lag"] == 1


def test_status_table_has_a_row_for_each_group(cli: Cli) -> None:
    cli("send", "orders", "--lines", input="1\n2\n3")
    cli("pause", "orders")
    lines = cli("status").stdout.splitlines()
    assert re.search(r"orders \(paused\)\s+default\s+3\s+0\s+0\s+0\s+0\s+0\s+0\s+3\s+\d", lines[-1]), lines


def test_status_of_chosen_queues(cli: Cli) -> None:
    for queue in ("a", "b", "c"):
        cli.send(queue, "1")
    assert [row["queue"] for row in cli.json("status", "a", "c")] == ["a", "c"]
    assert "there is no queue 'd'" in cli.error("status", "a", "d")


def test_status_of_an_empty_store(cli: Cli) -> None:
    cli("migrate")
    assert cli.json("status") == []
    assert "No queues yet" in cli("status").stdout


def test_info_shows_policy_groups_consumers_and_batches(cli: Cli) -> None:
    cli("queues", "declare", "orders", "lease_seconds=77")
    cli.send("orders", "1", "--batch", "nightly")
    with cli.store() as store:
        store.queue("orders").register("worker-1")
    document = cli.json("info", "orders")
    assert document["name"] == "orders"
    assert document["policy"]["lease_seconds"] == 77
    assert document["groups"]["default"]["held"] == 1
    assert [consumer["name"] for consumer in document["consumers"]] == ["worker-1"]
    assert [(batch["name"], batch["state"]) for batch in document["batches"]] == [("nightly", "open")]
    page = cli("info", "orders").stdout
    assert re.search(r"lease_seconds\s+77", page)
    assert "worker-1" in page
    assert "nightly" in page


def test_audit_is_a_timeline(cli: Cli) -> None:
    cli.send("orders", "1", "--created-by", "shop")
    message_id, token = cli.receive("orders", "--consumer", "worker-1")
    cli("nak", "orders", message_id, "--token", token, "--delay-seconds", "0", "--reason", "not [red]now[/red]")
    trail = cli.json("audit", "orders", message_id)
    assert [(step["event"], step["state"]) for step in trail] == [
        ("send", "ready"),
        ("receive", "leased"),
        ("nak", "ready"),
    ]
    assert [step["by"] for step in trail[:2]] == ["shop", "worker-1"]
    lines = cli("audit", "orders", message_id).stdout.splitlines()
    assert re.search(r"\+\d+\.\d{3}\s+receive\s+leased\s+default\s+1\s+worker-1", lines[-2]), lines
    assert lines[-1].rstrip().endswith(": not [red]now[/red]")


def test_explain_says_why_a_message_waits(cli: Cli) -> None:
    message_id = cli.send("orders", "1", "--delay-seconds", "500")
    document = cli.json("explain", "orders", message_id)
    assert (document["state"], document["group"]) == ("held", "default")
    assert document["because"]
    cli("pause", "orders")
    ready_id = cli.send("orders", "2")
    document = cli.json("explain", "orders", ready_id)
    assert "paused" in document["because"]
    page = cli("explain", "orders", ready_id).stdout
    assert f"{ready_id} is ready in group default: {document['because']}" in page
    assert f"What to do: {document['advice']}" in page


def test_audit_and_explain_of_an_unknown_message(cli: Cli) -> None:
    cli.send("orders", "1")
    unknown = "019a8c3e-7b2d-7abc-8def-0000000000ff"
    for verb in ("audit", "explain"):
        assert unknown in cli.error(verb, "orders", unknown)


def test_consumers_in_birth_order(cli: Cli) -> None:
    with cli.store() as store:
        for name, queue in (("b", "orders"), ("a", "orders"), ("c", "emails")):
            store.queue(queue).send(1)
            store.queue(queue).register(name)
    assert [(one["name"], one["index"]) for one in cli.json("consumers", "orders")] == [("b", 0), ("a", 1)]
    assert {one["name"] for one in cli.json("consumers")} == {"a", "b", "c"}
    assert re.search(r"a\s+orders default, 2 of 2", cli("consumers").stdout)


def test_a_dead_consumer_can_be_released(cli: Cli) -> None:
    with cli.store() as store:
        queue = store.queue("orders")
        queue.send_many([1, 2])
        queue.register("gone", heartbeat_seconds=600)
        queue.receive(limit=2, consumer="gone", lease_seconds=600)
        document = cli.json("consumers", "orders", "--release", "gone")
        assert document == {"queue": "orders", "group": "default", "consumer": "gone", "released": 2}
        assert queue.consumers() == []
        assert queue.stats(group="default").in_progress == 0
    assert "name its one queue" in cli.error("consumers", "--release", "gone")
    assert "has no consumer 'gone'" in cli.error("consumers", "orders", "--release", "gone")


def test_a_leased_message_can_be_settled_with_the_listed_token(cli: Cli) -> None:
    cli.send("orders", "1")
    assert "Nothing is in flight" in cli("leases", "orders").stdout
    with cli.store() as store:
        store.queue("orders").receive(consumer="gone", lease_seconds=600)
    (lease,) = cli.json("leases", "orders")
    assert (lease["consumer"], lease["attempt"]) == ("gone", 1)
    assert cli.json("leases", "orders", "--consumer", "another") == []
    assert lease["id"] in cli("leases", "orders").stdout
    settled = cli.json("reject", "orders", lease["id"], "--token", str(lease["token"]), "--reason", "nobody is there")
    assert settled["state"] == "rejected"


def test_no_consumers(cli: Cli) -> None:
    cli.send("orders", "1")
    assert cli.json("consumers") == []
    assert "No registered consumers" in cli("consumers").stdout


def test_explain_shows_the_stack_trace_of_the_last_error(cli: Cli) -> None:
    message_id = cli.send("orders", "1")
    with cli.store() as store:
        queue = store.queue("orders")
        (delivery,) = queue.receive()
        delivery.nak("ValueError: broken")
        store.engine.keep_traces(
            "orders", "default", [(delivery.position, 'File "shop.py", line 7\nValueError: broken')]
        )
    shown = cli("explain", "orders", message_id).stdout.splitlines()
    assert shown[-2:] == ['File "shop.py", line 7', "ValueError: broken"]
    assert cli.json("explain", "orders", message_id)["trace"] == 'File "shop.py", line 7\nValueError: broken'
