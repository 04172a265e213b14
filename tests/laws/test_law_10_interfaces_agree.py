"""Law 10: the same script gives the same result through Python, async Python, SQL, Redis protocol, HTTP and the command
line, on every engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.conformance.clients import open_async
from tests.conformance.engines import ENGINES, EngineRow
from tests.laws.interfaces import CliInterface, Interface, PythonInterface
from tests.laws.served_interfaces import HttpInterface, RedisInterface
from tests.laws.sql_interface import SqlInterface
from tests.servers.http.processes import HttpServer

INTERFACES: dict[str, Callable[[str, Path], Interface]] = {
    "python": lambda url, folder: PythonInterface(penstock.connect(url)),
    "async python": lambda url, folder: PythonInterface(open_async(url)),
    "cli": lambda url, folder: CliInterface(url),
    "http": lambda url, folder: HttpInterface(started(url, folder)),
    "redis protocol": lambda url, folder: RedisInterface(started(url, folder)),
    "sql": lambda url, folder: SqlInterface(url),
}


def started(url: str, folder: Path) -> HttpServer:
    return HttpServer(folder, url=url).start()


# SQLite has no SQL interface.
COMPARED = [
    (engine, name)
    for engine in ENGINES
    for name in INTERFACES
    if name != "python" and (name != "sql" or engine.name == "postgres")
]
CHOSEN_ID = "00000000-0000-4000-8000-00000000002a"


def script(interface: Interface) -> list[Any]:
    """A script of all verbs, whose results and final state must be the same through every interface."""
    said: list[Any] = []
    interface.declare("orders", max_retries=1, lease_seconds=600)
    interface.send("orders", {"n": 1}, priority=1)
    interface.send("orders", {"n": 2}, headers={"trace": "a=b"}, created_by="the script")
    said.append(interface.send("orders", {"n": 3}, id=CHOSEN_ID))
    said.append(interface.send("orders", {"n": 3}, id=CHOSEN_ID))
    interface.send("orders", {"n": 4}, delay_seconds=3600)
    interface.send("orders", {"n": 5}, address="the one")
    interface.batch("orders", "nightly", "set_end", {"end": "nightly"})
    interface.batch("orders", "nightly", "send", {"n": 6})
    interface.batch("orders", "nightly", "start")
    interface.batch("orders", "weekly", "set_abort", {"abort": "weekly"})
    interface.batch("orders", "weekly", "send", {"n": 7})
    interface.batch("orders", "weekly", "cancel")

    two, three, five, six, abort = interface.receive("orders", 5, "default")
    said.append([one.payload for one in (two, three, five, six, abort)])
    said.append(interface.settle("orders", "ack", two, reason="fine"))
    said.append(interface.settle("orders", "ack", two, reason="fine"))
    said.append(interface.settle("orders", "nak", two, reason="too late"))
    said.append(interface.settle("orders", "nak", three, reason="try again", delay_seconds=0))
    said.append(interface.settle("orders", "reject", five, reason="never"))
    said.append(interface.settle("orders", "ack", six))
    said.append(interface.settle("orders", "reschedule", abort, delay_seconds=7200, reason="later"))

    rest = interface.receive("orders", 10, "default")
    said.append([(one.payload, one.attempt) for one in rest])
    said.append(interface.settle("orders", "nak", rest[0], reason="again", delay_seconds=0))
    said.append(interface.redrive("orders"))
    said.append([one.payload for one in interface.receive("orders", 3, "other")])
    interface.sweep()
    return said


def left_behind(url: str) -> dict[str, Any]:
    """The observable state, without times and made ids."""
    with penstock.connect(url) as store:
        queue = store.queue("orders")
        found = {entry.message.id for entry in queue.archive(limit=100)} | {one.id for one in queue.peek(100)}
        found |= {one.id for one in queue.dead_letters()}
        stats = {
            group: (one.total, one.in_progress, one.redo, one.done, one.available, one.held, one.dead, one.outcomes)
            for group, one in queue.stats().items()
        }
        return {
            "policy": queue.policy(),
            "stats": stats,
            "messages": {bytes(queue.find(one).payload): described(queue, one) for one in sorted(found)},
            "letters": [(one.payload, one.outcome, one.reason, one.attempts) for one in queue.dead_letters()],
            "next": [one.payload for one in queue.peek(100)],
            "batches": [(one.name, one.state, one.total, one.remaining) for one in queue.batches()],
        }


def described(queue: penstock.Queue, message_id: str) -> Any:
    message = queue.find(message_id)
    trail = [(one.event, one.state, one.by, one.group, one.reason, one.attempt) for one in queue.audit(message_id)]
    fields = (
        message.content_type,
        message.headers,
        message.priority,
        message.created_by,
        message.address,
        message.batch,
    )
    return fields, trail, queue.explain(message_id).state


@pytest.mark.parametrize(("engine", "name"), COMPARED, ids=[f"{engine.name}-{name}" for engine, name in COMPARED])
def test_law_10_a_script_gives_the_same_through_every_interface(tmp_path: Path, engine: EngineRow, name: str) -> None:
    said, left = {}, {}
    forgets = False
    for which in ("python", name):
        folder = tmp_path / which
        folder.mkdir()
        url = engine.fresh_url(folder)
        interface: Interface = INTERFACES[which](url, folder)
        try:
            said[which] = script(interface)
        finally:
            interface.close()
        left[which] = left_behind(url)
        forgets = interface.forgets_ack_reasons
    if forgets:
        left = {which: without_ack_reasons(one) for which, one in left.items()}
    assert said[name] == said["python"]
    for part, expected in left["python"].items():
        assert left[name][part] == expected, part


def without_ack_reasons(left: dict[str, Any]) -> dict[str, Any]:
    messages = {
        payload: (fields, [(*one[:4], None if one[0] == "ack" else one[4], one[5]) for one in trail], state)
        for payload, (fields, trail, state) in left["messages"].items()
    }
    return {**left, "messages": messages}


def test_law_10_the_script_does_what_it_should(tmp_path: Path) -> None:
    """Two interfaces that are wrong in the same way would agree."""
    interface = INTERFACES["python"](f"sqlite:///{tmp_path}/store.db", tmp_path)
    said = script(interface)
    interface.close()
    assert said == [
        CHOSEN_ID,
        CHOSEN_ID,
        [{"n": 2}, {"n": 3}, {"n": 5}, {"n": 6}, {"abort": "weekly"}],
        *("ok", "ok", "LeaseLost", "ok", "ok", "ok", "ok"),
        [({"n": 3}, 2), ({"end": "nightly"}, 1), ({"n": 1}, 1)],
        "ok",
        3,
        [{"n": 2}, {"n": 3}, {"n": 5}],
    ]
