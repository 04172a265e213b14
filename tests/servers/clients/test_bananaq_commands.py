"""bananaq's commands, as its README shows them, through every client."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.servers.clients.client_programs import ClientError, Speaker
from tests.servers.clients.queue_status import blocked, counts, until
from tests.servers.clients.wire import Wire

STATISTICS = ["total", "inprogress", "redo", "done", "available", "consumers"]


def test_an_event_is_added_taken_and_acknowledged(client: Speaker, queue: str) -> None:
    added = client("QADD", queue, 60, "event contents to be consumed")
    assert isinstance(added, str)
    assert client("QGET", queue, "cool-kids") == [added, "event contents to be consumed"]
    assert client("QGET", queue, "cool-kids") is None
    assert client("QACK", queue, "cool-kids", added) == 1
    assert client("QACK", queue, "cool-kids", added) == 0
    assert client("QGET", queue, "cool-kids") is None


def test_events_come_in_the_order_they_were_added(client: Speaker, queue: str) -> None:
    added = [client("QADD", queue, 60, f"event {number}") for number in range(5)]
    assert len(set(added)) == 5
    assert [client("QGET", queue, "g")[0] for _ in added] == added


def test_groups_do_not_share(client: Speaker, queue: str) -> None:
    added = client("QADD", queue, 60, "for everybody")
    assert client("QGET", queue, "one", "EX", 0)[0] == added
    assert client("QGET", queue, "one") is None
    assert client("QGET", queue, "two") == [added, "for everybody"]
    assert client("QACK", queue, "one", added) == 0
    assert client("QACK", queue, "two", added) == 1


def test_a_lease_of_nothing_acknowledges_at_once(client: Speaker, queue: str) -> None:
    client("QADD", queue, 60, "seen once")
    assert client("QGET", queue, "g", "EX", "0")[1] == "seen once"
    assert counts(client, queue, "g")["done"] == 1
    assert counts(client, queue, "g")["inprogress"] == 0


def test_an_expired_lease_is_available_at_once(client: Speaker, queue: str) -> None:
    added = client("QADD", queue, 60, "again")
    began = time.monotonic()
    assert client("QGET", queue, "g", "EX", "0.15")[0] == added
    assert client("QNOTIFY", "g", 60, queue) == queue
    assert 0.1 < time.monotonic() - began < 30
    assert client("QACK", queue, "g", added) == 0
    assert client("QGET", queue, "g", "EX", 30) == [added, "again"]
    assert client("QACK", queue, "g", added) == 1


def test_an_event_is_gone_after_its_time(client: Speaker, queue: str) -> None:
    client("QADD", queue, "0.1", "soon gone")
    client("QADD", queue, 60, "stays")
    until(lambda: counts(client, queue, "g")["available"] == 1)
    assert client("QGET", queue, "g")[1] == "stays"


def test_noblock_answers_ok_and_the_event_arrives(client: Speaker, queue: str) -> None:
    assert client("QADD", queue, 60, "in the background", "NOBLOCK") == "OK"
    assert client("QNOTIFY", "g", 60, queue) == queue
    assert client("QGET", queue, "g")[1] == "in the background"


def test_notify_names_the_queue_that_has_an_event(client: Speaker, queue: str) -> None:
    assert client("QNOTIFY", "g", "0.1", queue, f"{queue}-b") is None
    client("QADD", f"{queue}-b", 60, "here")
    assert client("QNOTIFY", "g", 1, queue, f"{queue}-b") == f"{queue}-b"


def test_a_blocked_client_is_woken(client: Speaker, onlooker: Wire, queue: str) -> None:
    client.say("QNOTIFY", "g", 60, f"{queue}-a", queue)
    blocked(onlooker.call, queue, "g")
    began = time.monotonic()
    onlooker.call("QADD", queue, 60, "wake up")
    assert client.hear() == queue
    assert time.monotonic() - began < 30
    assert client("QGET", queue, "g")[1] == "wake up"


def test_a_blocked_client_is_woken_by_the_lease_of_another(client: Speaker, onlooker: Wire, queue: str) -> None:
    added = onlooker.call("QADD", queue, 60, "taken and dropped")
    assert onlooker.call("QGET", queue, "g", "EX", "0.3")[0] == added
    began = time.monotonic()
    assert client("QNOTIFY", "g", 60, queue) == queue
    assert time.monotonic() - began < 30
    assert client("QGET", queue, "g")[1] == "taken and dropped"


def test_flush_makes_it_as_if_the_queue_never_existed(client: Speaker, queue: str) -> None:
    for number in range(3):
        client("QADD", queue, 60, f"event {number}")
    taken = client("QGET", queue, "g")[0]
    assert client("QFLUSH", queue) == "OK"
    assert client("QGET", queue, "g") is None
    assert client("QACK", queue, "g", taken) in (0, 1)
    assert client("QGET", queue, "other") is None
    assert client("QFLUSH", f"{queue}-never-used") == "OK"


def test_status_counts_as_the_readme_shows(client: Speaker, onlooker: Wire, queue: str) -> None:
    for number in range(5):
        client("QADD", queue, 600, f"event {number}")
    client("QGET", queue, "g", "EX", 0)
    client("QGET", queue, "g", "EX", 600)
    # The first of these leases must not end before the second one begins, also on a busy machine.
    client("QGET", queue, "g", "EX", 1)
    client("QGET", queue, "g", "EX", "0.05")
    until(lambda: counts(client, queue, "g")["redo"] == 2)
    expected = {"total": 5, "inprogress": 1, "redo": 2, "done": 1, "available": 1, "consumers": 0}
    assert {name: counts(client, queue, "g")[name] for name in STATISTICS} == expected
    # A group that never read anything could read everything.
    fresh = {"total": 5, "inprogress": 0, "redo": 0, "done": 0, "available": 5, "consumers": 0}
    assert {name: counts(client, queue, "fresh")[name] for name in STATISTICS} == fresh
    assert counts(onlooker.call, queue, "g") == counts(client, queue, "g")


def test_status_counts_consumers(client: Speaker, onlooker: Wire, connect: Callable[[], Speaker], queue: str) -> None:
    with connect() as one, connect() as other:
        for speaker in (one, other):
            speaker.say("QNOTIFY", "g", 20, queue)
        blocked(onlooker.call, queue, "g", 2)
        assert counts(client, queue, "g")["consumers"] == 2
        onlooker.call("QADD", queue, 60, "for one of them")
        assert queue in (one.hear(), other.hear())
    blocked(onlooker.call, queue, "g", 0)


def test_status_of_all_queues_and_of_some_groups(client: Speaker, queue: str) -> None:
    client("QADD", queue, 60, "x")
    for group in ("one", "two", "three"):
        client("QGET", queue, group, "EX", 0)
    names = [name for name, _ in client("QSTATUS")]
    assert queue in names
    ((_, groups),) = client("QSTATUS", queue)
    assert {"one", "two", "three"} <= set(groups[::2])
    ((_, groups),) = client("QSTATUS", queue, "GROUPS", "one", "three")
    assert groups[::2] == ["one", "three"]
    assert next(name for name, _ in client("QSTATUS", queue, f"{queue}-b")) == queue


def test_info_is_for_people(client: Speaker, queue: str) -> None:
    client("QADD", queue, 60, "x")
    client("QGET", queue, "g")
    (line,) = client("QINFO", queue, "GROUPS", "g")
    assert re.fullmatch(
        rf"{queue} +g +total:1 +inprogress:1 +redo:0 +done:0 +available:0 +consumers:0.*", line.strip()
    ), line


def test_contents_are_bytes(client: Speaker, queue: str) -> None:
    everything = bytes(range(256)).decode("latin-1")
    added = client("QADD", queue, 60, everything)
    assert client("QGET", queue, "g", "EX", 0) == [added, everything]
    client("QADD", queue, 60, "")
    assert client("QGET", queue, "g", "EX", 0)[1] == ""


def test_case_does_not_matter(client: Speaker, queue: str) -> None:
    added = client("qAdd", queue, 60, "x")
    assert client("qget", queue, "g", "ex", "30")[0] == added
    assert client("QaCk", queue, "g", added) == 1
    assert client("qadd", queue, 60, "x", "noblock") == "OK"


@pytest.mark.parametrize(
    "words",
    [
        ["QADD"],
        ["QADD", "q", "60"],
        ["QADD", "q", "soon", "x"],
        ["QADD", "q", "60", "x", "NOSUCH"],
        ["QADD", "q", "60", "x", "NOBLOCK", "more"],
        ["QADD", "", "60", "x"],
        ["QADD", "q", "nan", "x"],
        ["QADD", "q", "inf", "x"],
        ["QGET", "q"],
        ["QGET", "q", "g", "EX"],
        ["QGET", "q", "g", "EX", "soon"],
        ["QGET", "q", "g", "EX", "-1"],
        ["QGET", "q", "g", "NOSUCH", "1"],
        ["QACK", "q"],
        ["QNOTIFY"],
        ["QNOTIFY", "g", "soon", "q"],
        ["QFLUSH"],
        ["QSTATUS", "q", "GROUPS", ""],
    ],
    ids=" ".join,
)
def test_bad_input_gets_an_error_and_the_connection_lives(client: Speaker, words: list[str]) -> None:
    with pytest.raises(ClientError) as caught:
        client(*words)
    assert len(str(caught.value)) > 5
    assert client("PING") in ("PONG", True)
