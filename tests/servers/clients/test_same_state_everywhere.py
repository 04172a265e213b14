"""The same state through every door: Redis protocol, Python, command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import penstock
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.queue_status import counts
from tests.servers.clients.wire import Wire


def cli(server: PenstockServer, *words: str) -> Any:
    """The command line in a process of its own, on the store that the server has open."""
    program = "import sys; from penstock.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--json", "--url", server.url],
        capture_output=True,
        timeout=60,
        env={**os.environ},
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_python_receives_what_qadd_sent(wire: Wire, store: penstock.Store) -> None:
    payload = bytes(range(256))
    id = wire.call("QADD", "orders", 60, payload).decode()
    (delivery,) = store.queue("orders").receive(group="g", consumer="python")
    assert (delivery.id, delivery.payload, delivery.attempt) == (id, payload, 1)
    assert counts(wire.call, "orders", "g")["inprogress"] == 1
    delivery.ack()
    assert counts(wire.call, "orders", "g")["done"] == 1
    assert wire.call("QACK", "orders", "g", id) == 0


def test_qget_takes_what_python_sent(wire: Wire, store: penstock.Store) -> None:
    id = store.queue("orders").send({"a": 1})
    assert wire.call("QGET", "orders", "default") == [id.encode(), b'{"a":1}']
    assert store.queue("orders").receive() == []
    assert wire.call("QACK", "orders", "default", id) == 1
    assert store.queue("orders").stats(group="default").done == 1


def test_every_door_audits_the_same(wire: Wire, store: penstock.Store, server: PenstockServer) -> None:
    id = wire.call("QADD", "orders", 60, "x").decode()
    wire.call("QGET", "orders", "g")
    wire.call("QACK", "orders", "g", id)
    events = [(str(entry.event), entry.group) for entry in store.queue("orders").audit(id)]
    assert events == [("send", None), ("receive", "g"), ("ack", "g")]
    told = cli(server, "audit", "orders", id)
    assert [(entry["event"], entry["group"]) for entry in told] == events


def test_every_door_counts_the_same(wire: Wire, store: penstock.Store, server: PenstockServer) -> None:
    for number in range(5):
        wire.call("QADD", "orders", 60, f"event {number}")
    wire.call("QGET", "orders", "g", "EX", 0)
    wire.call("QGET", "orders", "g")
    stats = store.queue("orders").stats(group="g")
    seen = counts(wire.call, "orders", "g")
    assert (seen["total"], seen["inprogress"], seen["done"]) == (stats.total, stats.in_progress, stats.done)
    assert (seen["total"], seen["inprogress"], seen["done"], seen["available"]) == (5, 1, 1, 3)
    # Five for one group, whichever door is asked.
    assert json.dumps(cli(server, "status", "orders")).count('"g"') >= 1


def test_streams_and_queue_commands_see_the_same_messages(wire: Wire, store: penstock.Store) -> None:
    wire.call("XGROUP", "CREATE", "orders", "g", "0", "MKSTREAM")
    entry = wire.call("XADD", "orders", "*", "task", "one")
    id = wire.call("QADD", "orders", 60, "two").decode()
    assert wire.call("XLEN", "orders") == 2
    assert counts(wire.call, "orders", "g")["available"] == 2
    ((_, ((first, fields),)),) = wire.call("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "orders", ">")
    assert (first, fields) == (entry, [b"task", b"one"])
    (delivery,) = store.queue("orders").receive(group="g")
    assert (delivery.id, delivery.payload) == (id, b"two")
    assert wire.call("XACK", "orders", "g", entry) == 1
    delivery.ack()
    assert counts(wire.call, "orders", "g")["done"] == 2
    assert wire.call("XPENDING", "orders", "g")[0] == 0


def test_a_message_sent_by_python_wakes_a_blocked_client(wire: Wire, store: penstock.Store) -> None:
    store.queue("orders").send(b"make the queue known")
    wire.call("QGET", "orders", "g", "EX", 0)
    wire.send(b"*4\r\n$7\r\nQNOTIFY\r\n$1\r\ng\r\n$2\r\n20\r\n$6\r\norders\r\n")
    store.queue("orders").send(b"wake up")
    assert wire.read().plain == b"orders"


@pytest.mark.parametrize("command", ["QGET orders g EX 600", "XREADGROUP GROUP g c STREAMS orders >"])
def test_a_lease_is_respected_by_every_door(command: str, wire: Wire, store: penstock.Store) -> None:
    wire.call("XGROUP", "CREATE", "orders", "g", "0", "MKSTREAM")
    wire.call("XADD", "orders", "*", "a", "1")
    assert wire.call(*command.split()) is not None
    assert store.queue("orders").receive(group="g") == []
    assert wire.call("QGET", "orders", "g") is None
