"""messages, batch members, queues delete, schedule edit and run, consumers by process."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_runner import Cli
from tests.cli.test_processes import environment, read_until


def test_messages_are_listed_by_state(cli: Cli) -> None:
    later = cli.send("orders", "1", "--delay-seconds", "2h")
    sent = [cli.send("orders", str(number)) for number in range(3)]
    running, _ = cli.receive("orders", "--consumer", "ann")
    assert running == sent[0]
    assert [one["id"] for one in cli.json("messages", "orders", "--state", "held")["messages"]] == [later]
    shown = cli("messages", "orders", "--state", "held").stdout
    assert later in shown
    assert "due in 1 h 59 m" in shown
    running_shown = cli("messages", "orders", "--state", "leased").stdout
    assert re.search(r"running \d", running_shown)
    assert "ann" in running_shown
    page = cli.json("messages", "orders", "--state", "ready", "--limit", "1")
    assert [one["id"] for one in page["messages"]] == sent[1:2]
    rest = cli.json("messages", "orders", "--state", "ready", "--after", page["next"])
    assert [one["id"] for one in rest["messages"]] == sent[2:]
    assert f"--after {page['next']}" in cli("messages", "orders", "--state", "ready", "--limit", "1").stdout
    assert "None." in cli("messages", "orders", "--state", "failed").stdout


def test_a_wrong_state_queue_or_group_is_named(cli: Cli) -> None:
    cli.send("orders", "1")
    assert "'hold' is none of held, ready" in cli.error("messages", "orders", "--state", "hold", code=2)
    assert "did you mean 'orders'" in cli.error("messages", "ordres", "--state", "held")
    assert "no group 'defualt'" in cli.error("messages", "orders", "--state", "held", "--group", "defualt")
    assert "after must be `next`" in cli.error("messages", "orders", "--state", "held", "--after", "x")


def test_members_of_a_batch(cli: Cli) -> None:
    sent = [cli.send("orders", str(number), "--batch", "nightly") for number in range(3)]
    page = cli.json("batch", "members", "orders", "nightly", "--limit", "2")
    assert [(one["id"], one["state"]) for one in page["messages"]] == [(one, "held") for one in sent[:2]]
    cli("batch", "start", "orders", "nightly")
    shown = cli("batch", "members", "orders", "nightly").stdout
    assert all(one in shown for one in sent)
    assert "ready" in shown


def test_a_queue_is_deleted(cli: Cli) -> None:
    cli.send("orders", "1")
    assert "nothing was removed: say --yes" in cli.error("queues", "delete", "orders")
    assert cli.json("queues", "delete", "orders", "--yes") == {"queue": "orders", "deleted": 1}
    assert cli.json("queues") == []
    assert "there is no queue 'orders'" in cli.error("queues", "delete", "orders", "--yes")
    cli("schedule", "add", "nightly", "0 3 * * *", "orders", "{}")
    cli.send("orders", "1")
    assert "schedule 'nightly' would make it anew" in cli.error("queues", "delete", "orders", "--yes")


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", 1), (b"y\n", 0)])
def test_deletion_asks_a_person_and_says_how_many_messages_go(tmp_path: Path, answer: bytes, left: int) -> None:
    def run(*words: str) -> bytes:
        command = [sys.executable, "-m", "penstock.cli", *words]
        return subprocess.run(command, env=environment(tmp_path), capture_output=True, check=True, timeout=60).stdout

    for number in range(3):
        run("send", "orders", str(number))
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "queues", "delete", "orders"],
        env=environment(tmp_path),
        stdin=child,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    read_until(parent, b"Delete queue 'orders' with 3 messages for good? [y/N]")
    os.write(parent, answer)
    assert process.wait(60) == left
    os.close(parent)
    assert len(json.loads(run("queues", "--json"))) == left


def test_a_schedule_is_edited_field_by_field(cli: Cli) -> None:
    made = ["schedule", "add", "nightly", "0 3 * * *", "orders", '{"a": 1}', "--key", "k", "--ttl-seconds", "2h"]
    cli(*made, "--header", "x=y", "--timezone", "Europe/Berlin", "--priority", "4")
    before = cli.json("schedule")[0]
    cli("schedule", "edit", "nightly", "--cron", "30 4 * * *")
    after = cli.json("schedule")[0]
    assert after["cron"] == "30 4 * * *"
    kept = ("queue", "payload", "key", "ttl_seconds", "headers", "timezone", "priority", "catch_up", "content_type")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    cli("schedule", "edit", "nightly", "--payload", '{"a": 2}', "--queue", "mail", "--catch-up", "one")
    changed = cli.json("schedule")[0]
    assert (changed["payload"], changed["queue"], changed["catch_up"]) == ({"a": 2}, "mail", "one")
    assert "did you mean 'nightly'" in cli.error("schedule", "edit", "nigthly", "--cron", "* * * * *")
    assert "does not parse" in cli.error("schedule", "edit", "nightly", "--cron", "soon")


def test_a_schedule_is_run_now(cli: Cli) -> None:
    cli("schedule", "add", "nightly", "0 3 * * *", "orders", '{"a": 1}')
    sent = cli.json("schedule", "run", "nightly")
    assert sent["queue"] == "orders"
    assert cli.json("peek", "orders")[0]["id"] == sent["id"]
    assert "did you mean 'nightly'" in cli.error("schedule", "run", "nigthly")


def test_consumers_have_a_row_for_each_process(cli: Cli) -> None:
    with cli.store() as store:
        for name in ("orders", "mail"):
            store.queue(name).register("host-1")
        store.queue("orders").register("host-2")
        assert [(one.name, len(one.consumers)) for one in store.processes()] == [("host-1", 2), ("host-2", 1)]
    shown = cli("consumers").stdout
    assert shown.count("host-1") == 1
    assert "orders default, 1 of 2" in shown
    assert "mail default, 1 of 1" in shown
    assert len(cli.json("consumers")) == 3
