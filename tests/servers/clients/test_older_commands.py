"""The commands that bananaq's table of contents lists and its last chapter uses, through every client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers.clients.client_programs import ClientError, Speaker
from tests.servers.clients.queue_status import blocked
from tests.servers.clients.wire import Wire

# Consumers that name no group are in this one.
GROUP = "default"


def test_peek_shows_the_event_of_the_readme(client: Speaker, queue: str) -> None:
    assert client("QLPEEK", queue) is None
    assert client("QLPUSH", queue, "1", "testevent") == "OK"
    assert client("QLPEEK", queue) == ["1", "testevent"]
    assert client("QRPEEK", queue) == ["1", "testevent"]
    assert client("QRPOP", queue) == ["1", "testevent"]


def test_what_is_pushed_left_is_popped_right_in_order(client: Speaker, queue: str) -> None:
    for number in (1, 2, 3):
        client("QLPUSH", queue, f"id-{number}", f"event {number}")
    assert client("QRPEEK", queue) == ["id-1", "event 1"]
    assert client("QLPEEK", queue) == ["id-3", "event 3"]
    assert [client("QRPOP", queue)[0] for _ in range(3)] == ["id-1", "id-2", "id-3"]
    assert client("QRPOP", queue) is None


def test_what_is_pushed_right_is_popped_next(client: Speaker, queue: str) -> None:
    client("QLPUSH", queue, "a", "first in line")
    assert client("QRPUSH", queue, "b", "urgent") == "OK"
    assert client("QRPEEK", queue) == ["b", "urgent"]
    client("QRPUSH", queue, "c", "more urgent")
    assert [client("QRPOP", queue)[0] for _ in range(3)] == ["c", "b", "a"]
    client("QRPUSH", queue, "d", "x")
    assert client("QLPEEK", queue) == ["d", "x"], "the only one that waits"


def test_a_popped_event_is_acknowledged_or_comes_back(client: Speaker, queue: str) -> None:
    client("QLPUSH", queue, "a", "x")
    assert client("QRPOP", queue, "EX", "0.1") == ["a", "x"]
    assert client("QNOTIFY", GROUP, 10, queue) == queue
    assert client("QRPOP", queue, "EX", "30") == ["a", "x"]
    assert client("QACK", queue, "a") == 1
    assert client("QACK", queue, "a") == 0


def test_popping_with_no_lease_acknowledges_at_once(client: Speaker, queue: str) -> None:
    client("QLPUSH", queue, "a", "x")
    assert client("QRPOP", queue, "EX", 0) == ["a", "x"]
    assert client("QACK", queue, "a") == 0


def test_an_id_is_used_once(client: Speaker, queue: str) -> None:
    client("QLPUSH", queue, "a", "x")
    with pytest.raises(ClientError):
        client("QLPUSH", queue, "a", "y")
    assert client("QRPOP", queue) == ["a", "x"]
    assert client("QRPOP", queue) is None


def test_pushing_in_the_background(client: Speaker, queue: str) -> None:
    assert client("QLPUSH", queue, "a", "x", "NOBLOCK") == "OK"
    assert client("QNOTIFY", GROUP, 10, queue) == queue
    assert client("QRPOP", queue)[1] == "x"


def test_the_consumer_loop_of_the_last_chapter(connect: Callable[[], Speaker], onlooker: Wire, queue: str) -> None:
    queues = [f"{queue}-{name}" for name in ("foo", "bar", "baz")]
    done = []
    with connect() as consumer:
        assert consumer("QREGISTER", *queues) == "OK"
        assert consumer("QNOTIFY", "0.1") is None
        for number, name in enumerate([queues[1], queues[0], queues[2], queues[1]]):
            consumer.say("QNOTIFY", 30)
            blocked(onlooker.call, name, GROUP)
            onlooker.call("QLPUSH", name, f"event-{number}", f"contents {number}")
            notified = consumer.hear()
            event, contents = consumer("QRPOP", notified)
            assert consumer("QACK", notified, event) == 1
            done.append((notified, event, contents))
        # Another consumer nabs the event before we can.
        consumer.say("QNOTIFY", 30)
        blocked(onlooker.call, queues[0], GROUP)
        onlooker.call("QLPUSH", queues[0], "nabbed", "x")
        assert consumer.hear() == queues[0]
        assert onlooker.call("QRPOP", queues[0])[0] == b"nabbed"
        assert consumer("QRPOP", queues[0]) is None
    assert done == [
        (queues[1], "event-0", "contents 0"),
        (queues[0], "event-1", "contents 1"),
        (queues[2], "event-2", "contents 2"),
        (queues[1], "event-3", "contents 3"),
    ]


def test_registering_again_replaces(connect: Callable[[], Speaker], onlooker: Wire, queue: str) -> None:
    with connect() as consumer:
        consumer("QREGISTER", f"{queue}-a")
        consumer("QREGISTER", f"{queue}-b")
        onlooker.call("QLPUSH", f"{queue}-a", "1", "x")
        assert consumer("QNOTIFY", "0.1") is None
        onlooker.call("QLPUSH", f"{queue}-b", "1", "x")
        assert consumer("QNOTIFY", 1) == f"{queue}-b"
