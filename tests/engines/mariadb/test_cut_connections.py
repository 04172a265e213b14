"""A connection is cut at every packet of every verb: no call takes effect twice, and none that returned is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import penstock
from tests.engines.mariadb.cutter import Cutter, Lost
from tests.engines.mariadb.server import server

# Far more than any verb sends.
MOST_PACKETS = 40


@pytest.fixture
def cutter() -> Iterator[Cutter]:
    made = Cutter(server().socket)
    yield made
    made.close()


def warm(queue: penstock.Queue) -> None:
    """Use a queue, so that the client knows it."""
    for _ in range(2):
        queue.send(b"0")
        queue.ack_many(queue.receive())


def send(queue: penstock.Queue) -> None:
    queue.send(b"1")


def send_with_options(queue: penstock.Queue) -> None:
    queue.send(b"1", priority=3, headers={"a": "b"})


def receive(queue: penstock.Queue) -> list[penstock.Delivery]:
    return queue.receive(limit=10)


def ack(queue: penstock.Queue) -> None:
    queue.ack_many(queue.receive(limit=10))


def nak(queue: penstock.Queue) -> None:
    for delivery in queue.receive(limit=10):
        delivery.nak("later", delay_seconds=0)


def cuts(
    url: str,
    cutter: Cutter,
    lost: Lost,
    count: int,
    call: Callable[[penstock.Queue], Any],
    is_short: bool = True,
) -> Iterator[tuple[penstock.Queue, Any]]:
    """Make the call on a queue with `count` messages once for each packet that it sends, and lose that one. Yields the
    queue, seen by another client, and the answer; None for a call that failed."""
    database = urlsplit(url).path
    for packet in itertools.count(1):
        assert packet < MOST_PACKETS
        with (
            penstock.connect(f"mysql://root@127.0.0.1:{cutter.port}{database}") as cut,
            penstock.connect(url) as direct,
        ):
            queue = cut.queue(f"q{packet}")
            if is_short:
                # The first receive of all takes the other way, and the next ones of its client as well.
                warm(direct.queue(queue.name))
            warm(queue)
            queue.send_many([b"%d" % number for number in range(count)])
            cutter.arm(packet, lost)
            try:
                answer = (call(queue),)
            except penstock.StoreUnavailable:
                answer = None
            was_cut = cutter.disarm()
            yield direct.queue(queue.name), answer
            if not was_cut:
                assert answer is not None
                return


@pytest.mark.parametrize("lost", Lost)
@pytest.mark.parametrize("call", [send, send_with_options])
def test_a_send_takes_effect_once_or_fails(url: str, cutter: Cutter, lost: Lost, call: Any) -> None:
    for queue, answer in cuts(url, cutter, lost, 0, call):
        stored = len(queue.receive(limit=10))
        assert stored <= 1
        assert stored == 1 or answer is None


@pytest.mark.parametrize("lost", Lost)
@pytest.mark.parametrize("is_short", [True, False])
def test_a_receive_leases_once_or_fails(url: str, cutter: Cutter, lost: Lost, is_short: bool) -> None:
    for queue, answer in cuts(url, cutter, lost, 3, receive, is_short):
        stats = queue.stats(group="default")
        assert stats.in_progress + stats.available == 3
        assert stats.in_progress in (0, 3)
        if answer is not None:
            assert [one.payload for one in answer[0]] == [b"0", b"1", b"2"]
            assert queue.ack_many(answer[0]) == 3


@pytest.mark.parametrize("lost", Lost)
@pytest.mark.parametrize("call", [ack, nak])
def test_a_settlement_takes_effect_once_or_not_at_all(url: str, cutter: Cutter, lost: Lost, call: Any) -> None:
    for queue, answer in cuts(url, cutter, lost, 1, call):
        stats = queue.stats(group="default")
        assert stats.total == 5
        assert stats.done + stats.in_progress + stats.available + stats.redo == 5
        if answer is not None:
            assert stats.in_progress == 0
            assert stats.done == (5 if call is ack else 4)
