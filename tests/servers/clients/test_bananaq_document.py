"""bananaq's document from its concepts to its last step, spoken by redis-cli and redis-py to two servers on one store.

Sentences of the document stand beside what they lead to. docs/seeds.md lists where Penstock differs, and why.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.engines import ENGINES, EngineRow
from tests.ports import free_port
from tests.servers.clients.client_programs import SPEAKERS, ClientError, Speaker
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.queue_status import blocked, counts, until

ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
PENSTOCK = [sys.executable, "-c", "import sys; from penstock.cli import main; sys.exit(main())"]


@pytest.fixture(scope="module", params=ENGINES, ids=lambda row: row.name)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[PenstockServer]]:
    """Multiple instances can run on the same store without knowing about each other."""
    row: EngineRow = request.param
    folder = tmp_path_factory.mktemp("bananaq")
    url = row.fresh_url(folder)
    with PenstockServer(folder, url=url) as one, PenstockServer(folder, url=url) as other:
        yield [one.start(), other.start()]


@pytest.fixture(scope="module", params=["redis-cli RESP2", "redis-py 8 RESP3"])
def connect(request: pytest.FixtureRequest, servers: list[PenstockServer]) -> Iterator[Callable[[int], Speaker]]:
    """Connects to the first or the second server."""
    with ExitStack() as stack:
        yield lambda place: stack.enter_context(SPEAKERS[request.param](servers[place].port))


@pytest.fixture(scope="module")
def one(connect: Callable[[int], Speaker]) -> Speaker:
    return connect(0)


@pytest.fixture(scope="module")
def other(connect: Callable[[int], Speaker]) -> Speaker:
    return connect(1)


def listed(client: Speaker) -> list[str]:
    return [name for name, _ in client("QSTATUS")]


def groups_of(client: Speaker, queue: str) -> dict[str, dict[str, Any]]:
    ((_, groups),) = client("QSTATUS", queue)
    return {
        group: dict(zip(numbers[::2], numbers[1::2], strict=True))
        for group, numbers in zip(groups[::2], groups[1::2], strict=True)
    }


# -- Concepts --------------------------------------------------------------------------------------------------------


def test_concepts(one: Speaker, other: Speaker, queue: str) -> None:
    # Events are pushed in fifo style. Each is assigned an id, increasing across the cluster, so each is unique.
    added = [(one, other)[number % 2]("QADD", queue, 600, f"event {number}") for number in range(6)]
    assert all(ID(one) for one in added)
    assert len(set(added)) == 6
    assert [other("QGET", queue, "order", "EX", 0)[0] for _ in added] == added
    # The client cannot specify an id.
    with pytest.raises(ClientError):
        one("QADD", queue, 600, "event", "my-own-id")
    # Its timeout is specified. After this timeout the event will no longer exist.
    brief = f"{queue}-brief"
    one("QADD", brief, "0.2", "soon gone")
    until(lambda: brief not in listed(other))
    assert other("QGET", brief, "g") is None
    # Consumer groups are arbitrary and can appear arbitrarily. An event is handed out to one consumer of a group at a
    # time, and is not seen again in the group once it was processed.
    event, _ = one("QGET", queue, "cool-kids")
    assert event == added[0]
    assert other("QGET", queue, "cool-kids")[0] == added[1]
    assert one("QACK", queue, "cool-kids", event) == 1
    # One that is not acknowledged in time is put back, and comes before those that were never handed out.
    late = f"{queue}-late"
    first, second = one("QADD", late, 600, "1"), other("QADD", late, 600, "2")
    assert one("QGET", late, "g", "EX", "0.2")[0] == first
    until(lambda: counts(other, late, "g")["redo"] == 1)
    # It counts as soon as its time is over. On PostgreSQL a receive passes it by while a sweep is putting it back.
    until(lambda: "lease_end" in str(other("QAUDIT", late, first)))
    assert [other("QGET", late, "g")[0], one("QGET", late, "g")[0]] == [first, second]
    # Its status for one group does not affect its status in another; it is only discarded once its timeout is reached.
    assert other("QGET", queue, "late-comers", "EX", 0)[0] == added[0]


def test_it_is_binary_safe(one: Speaker, other: Speaker, queue: str) -> None:
    everything = bytes(range(256)).decode("latin-1")
    event = one("QADD", queue, 600, everything)
    assert other("QGET", queue, "g", "EX", 0) == [event, everything]
    # Names are text here: any UTF-8 without control characters. What is not is refused by an error that says so.
    text = "Ünï cödé:*\"'"
    one("QADD", f"{queue} {text}".encode(), 600, "x")
    assert other("QGET", f"{queue} {text}".encode(), text.encode())[1] == "x"
    refusal = "not valid UTF-8: names are text in this store, contents may be any bytes"
    for name, words in (("QADD", [b"q\xff", 60, "x"]), ("QGET", [b"\xff", "g"]), ("QGET", ["q", b"g\xff"])):
        with pytest.raises(ClientError, match=refusal):
            one(name, *words)
    with pytest.raises(ClientError, match="has a control character: a name has none"):
        one("QADD", b"q\x00", 60, "x")


# -- Install, Configuration ------------------------------------------------------------------------------------------


def test_configuration(tmp_path: Path) -> None:
    # See command line parameters and descriptions.
    help_text = subprocess.run([*PENSTOCK, "serve", "-h"], capture_output=True, text=True, check=True).stdout
    assert "--resp-port" in help_text
    assert "--config" in help_text
    # Create a configuration file with default values pre-populated.
    example = subprocess.run([*PENSTOCK, "serve", "--example"], capture_output=True, text=True, check=True).stdout
    assert tomllib.loads(example)["resp"]["port"] == 4777, "by default it listens on port 4777"
    # Use it; environment variables take precedence over it, and command line arguments over them.
    by_file, by_environment, by_flag = free_port(), free_port(), free_port()
    file = tmp_path / "bananaq.toml"
    file.write_text(example.replace("port = 4777", f"port = {by_file}"))
    words = ["--config", str(file)]
    with PenstockServer(tmp_path, *words, port=by_environment) as server:
        assert server.start().is_alive()
    with PenstockServer(tmp_path, *words, port=by_file, environment={"PENSTOCK_RESP_PORT": ""}) as server:
        del server.environment["PENSTOCK_RESP_PORT"]
        assert server.start().is_alive()
    flags = ["--resp-port", str(by_flag)]
    with PenstockServer(
        tmp_path, *words, *flags, port=by_flag, environment={"PENSTOCK_RESP_PORT": str(by_environment)}
    ) as server:
        assert server.start().is_alive()


# -- Usage, Commands -------------------------------------------------------------------------------------------------


def test_usage(one: Speaker, other: Speaker, queue: str) -> None:
    one("QLPUSH", queue, "1", "testevent")
    assert other("QLPEEK", queue) == ["1", "testevent"]


def test_a_queue_is_there_while_it_has_events_or_consumers(
    one: Speaker, other: Speaker, connect: Callable[[int], Speaker], queue: str
) -> None:
    # Pushing an event implicitly creates it; once it has no events and no consumers it no longer exists.
    assert one("QGET", queue, "g") is None
    assert queue not in listed(one)
    one("QADD", queue, 2, "x")
    assert queue in listed(other)
    until(lambda: queue not in listed(one) and queue not in listed(other))
    waiting = connect(0)
    waiting.say("QNOTIFY", "g", 60, queue)
    until(lambda: queue in listed(one) and queue in listed(other))
    other("QADD", queue, 60, "x")
    assert waiting.hear() == queue


def test_qadd(one: Speaker, other: Speaker, queue: str) -> None:
    assert ID(one("QADD", queue, 60, "event"))
    assert one("QADD", queue, 60, "in the background", "NOBLOCK") == "OK"
    until(lambda: counts(other, queue, "g")["available"] == 2)


def test_qget(one: Speaker, other: Speaker, queue: str) -> None:
    event = one("QADD", queue, 60, "event contents to be consumed")
    assert other("QGET", queue, "cool-kids") == [event, "event contents to be consumed"]
    assert other("QGET", queue, "cool-kids") is None
    # An integer string, or a float string; 30 seconds by default; 0 acknowledges.
    assert one("QGET", queue, "float", "EX", "0.5")[0] == event
    assert one("QGET", queue, "whole", "EX", "30")[0] == event
    assert one("QGET", queue, "at-once", "EX", "0")[0] == event
    assert counts(other, queue, "at-once")["done"] == 1


def test_qack(one: Speaker, other: Speaker, queue: str) -> None:
    event = one("QADD", queue, 60, "x")
    one("QGET", queue, "g")
    assert one("QACK", queue, "g", event) == 1
    assert one("QACK", queue, "g", event) == 0
    # It timed out.
    assert one("QGET", queue, "late", "EX", "0.1")[0] == event
    until(lambda: counts(other, queue, "late")["redo"] == 1)
    assert one("QACK", queue, "late", event) == 0
    # Through another server: a consumer with a name settles what it holds, through whichever it got it.
    for client in (one, other):
        client("CLIENT", "SETNAME", "ann")
    assert one("QGET", queue, "named")[0] == event
    assert other("QACK", queue, "named", event) == 1
    assert one("QACK", queue, "named", event) == 0
    for client in (one, other):
        client("CLIENT", "SETNAME", "")


def test_qnotify(one: Speaker, other: Speaker, queue: str) -> None:
    empty = f"{queue}-empty"
    one("QADD", queue, 60, "x")
    assert other("QNOTIFY", "g", 5, empty, queue) == queue
    assert other("QNOTIFY", "g", "0.1", empty) is None
    one.say("QNOTIFY", "g", 60, empty)
    blocked(other, empty, "g")
    began = time.monotonic()
    other("QADD", empty, 60, "x")
    assert one.hear() == empty
    assert time.monotonic() - began < 30


def test_qflush(one: Speaker, other: Speaker, queue: str) -> None:
    for number in range(3):
        one("QADD", queue, 60, str(number))
    held = one("QGET", queue, "g", "EX", "0.3")[0]
    other("QGET", queue, "g")
    assert other("QFLUSH", queue) == "OK"
    # As if the queue never existed.
    assert queue not in listed(one)
    assert queue not in listed(other)
    assert groups_of(one, queue) == {}
    # What is being consumed may still complete, and is not added back if it does not.
    assert one("QACK", queue, "g", held) == 0
    time.sleep(0.4)  # beyond the end of its lease: nothing says that it did not come back
    assert [one("QGET", queue, "g"), other("QGET", queue, "g"), one("QGET", queue, "new")] == [None] * 3
    event = other("QADD", queue, 60, "anew")
    assert one("QGET", queue, "g") == [event, "anew"]


def test_qstatus_and_qinfo(one: Speaker, other: Speaker, connect: Callable[[int], Speaker], queue: str) -> None:
    for number in range(5):
        (one, other)[number % 2]("QADD", queue, 600, f"event {number}")
    one("QADD", queue, "0.2", "expires")
    one("QGET", queue, "group1", "EX", 0)
    one("QGET", queue, "group1", "EX", 600)
    # The first of these leases must not end before the second one begins, also on a busy machine.
    other("QGET", queue, "group1", "EX", 1)
    other("QGET", queue, "group1", "EX", "0.1")
    one("QGET", queue, "group2", "EX", 0)
    waiting = [connect(0), connect(1), connect(1)]
    for client in waiting:
        client.say("QNOTIFY", "group3", 60, queue, f"{queue}-b")
        assert client.hear() == queue, "there is something for a group that has read nothing"
    other("QADD", f"{queue}-b", 600, "x")
    for client in waiting:
        client.say("QNOTIFY", "group4", 60, f"{queue}-c")
    expected = {"total": 5, "inprogress": 1, "redo": 2, "done": 1, "available": 1, "consumers": 0}
    # What has expired unread is available until the next sweep.
    until(lambda: counts(one, queue, "group1") == expected and counts(one, queue, "group2")["available"] == 4)
    for client in (one, other):
        told = groups_of(client, queue)
        assert told["group1"] == expected
        assert {name: numbers["total"] for name, numbers in told.items()} == {"group1": 5, "group2": 5}
        assert (told["group2"]["done"], told["group2"]["available"]) == (1, 4)
        # The number of consumers notified on the queue, whichever server they wait at.
        blocked(client, f"{queue}-c", "group4", 3)
        assert {queue, f"{queue}-b", f"{queue}-c"} <= set(listed(client))
        ((name, groups),) = client("QSTATUS", queue, "GROUPS", "group2", "new")
        assert (name, groups[::2]) == (queue, ["group2", "new"])
        lines = client("QINFO", queue, f"{queue}-b", "GROUPS", "group1", "group2")
        assert [" ".join(line.split()) for line in lines[:2]] == [
            f"{queue} group1 total:5 inprogress:1 redo:2 done:1 available:1 consumers:0",
            f"{queue} group2 total:5 inprogress:0 redo:0 done:1 available:4 consumers:0",
        ]
    other("QADD", f"{queue}-c", 600, "x")
    assert [client.hear() for client in waiting] == [f"{queue}-c"] * 3
    blocked(one, f"{queue}-c", "group4", 0)
    blocked(other, f"{queue}-c", "group4", 0)


# -- Consumers -------------------------------------------------------------------------------------------------------


def test_consumers(one: Speaker, other: Speaker, queue: str) -> None:
    names = [f"{queue}-{name}" for name in ("foo", "bar", "baz")]
    assert one("QREGISTER", *names) == "OK"
    assert one("QNOTIFY", "0.1") is None
    one.say("QNOTIFY", 30)
    blocked(other, names[1], "default")
    other("QLPUSH", names[1], "first", "contents")
    assert one.hear() == names[1]
    assert one("QRPOP", names[1]) == ["first", "contents"]
    assert one("QRPOP", names[1]) is None, "another consumer nabbed it"
    assert one("QACK", names[1], "first") == 1
    assert one("QNOTIFY", "0.1") is None


def test_every_command_of_the_document_is_known(one: Speaker) -> None:
    newer = {"qadd", "qget", "qack", "qnotify", "qflush", "qstatus", "qinfo"}
    older = {"qlpush", "qrpush", "qlpeek", "qrpeek", "qrpop", "qregister"}
    assert newer | older <= set(one("COMMAND", "LIST"))
