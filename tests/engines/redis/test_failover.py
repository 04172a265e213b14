"""What a failover and a killed server lose, for each durability; clients recover by themselves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

import penstock
from tests.engines.redis.failover import WRITTEN, ReplicatedServer
from tests.engines.redis.server import RedisServer, program, valkey_program
from tests.faults.processes import await_until

WHILE_DETACHED = 3


@pytest.fixture(scope="module")
def replicated() -> Iterator[ReplicatedServer]:
    with ReplicatedServer() as replicated:
        yield replicated


class Sender:
    """Sends messages one by one and records the ids of those that were acknowledged."""

    def __init__(self, url: str) -> None:
        self.store = penstock.connect(url)
        self.queue = self.store.queue("orders")
        self.acknowledged: list[str] = []

    def send(self) -> bool:
        try:
            self.acknowledged.append(self.queue.send("order"))
        except penstock.StoreUnavailable:
            return False
        return True

    def lost(self) -> list[str]:
        """The acknowledged messages that the store does not have."""
        return [message_id for message_id in self.acknowledged if not self._has(message_id)]

    def _has(self, message_id: str) -> bool:
        try:
            return bool(self.queue.find(message_id))
        except penstock.NotFound:
            return False


# A sentinel may need a while to trust the replica.
@pytest.mark.timeout(300)
def test_a_failover_loses_what_the_replica_did_not_have_unless_it_was_awaited(replicated: ReplicatedServer) -> None:
    """Acknowledged messages that are gone: all that were sent while the replica was detached; none with replicas=1."""
    senders = {
        durability: Sender(f"{replicated.url}?prefix={prefix}&durability={durability}&confirm_seconds=1")
        for durability, prefix in (("memory", "m"), ("aof", "a"), ("replicas=1", "r"))
    }
    for sender in senders.values():
        await_until(sender.send)
    # What a replica confirms, it has with all that was sent before.
    await_until(senders["replicas=1"].send)
    before = {durability: len(sender.acknowledged) for durability, sender in senders.items()}
    replicated.detach_replica()
    for sender in senders.values():
        for _ in range(WHILE_DETACHED):
            sender.send()
    replicated.kill_primary()
    assert not any(sender.send() for sender in senders.values())
    replicated.fail_over()
    lost = {}
    for durability, sender in senders.items():
        if durability != "replicas=1":
            await_until(sender.send)
        lost[durability] = len(sender.lost())
        sender.store.close()
    assert before["replicas=1"] > 0
    assert lost == {"memory": WHILE_DETACHED, "aof": WHILE_DETACHED, "replicas=1": 0}


@pytest.mark.parametrize("command", [program, valkey_program], ids=["redis", "valkey"])
def test_a_killed_server_loses_nothing_that_was_acknowledged(command: Callable[[], str]) -> None:
    """Clients that send, receive and ack while the server is killed go on when it is back."""
    with RedisServer(*WRITTEN, command=command()) as server:
        with penstock.connect(server.url) as store:
            store.migrate()
        url = f"{server.url}?durability=aof&prefix=k"
        senders = [Sender(url) for _ in range(3)]
        stop, settled = threading.Event(), list[str]()

        def send(sender: Sender) -> None:
            while not stop.is_set():
                sender.send()

        def work() -> None:
            with penstock.connect(url) as store:
                while not stop.is_set():
                    with contextlib.suppress(penstock.StoreUnavailable):
                        for delivery in store.queue("orders").receive(limit=10, lease_seconds=600):
                            delivery.ack()
                            settled.append(delivery.id)

        def has_progress() -> Callable[[], bool]:
            before = [len(sender.acknowledged) for sender in senders], len(settled)
            return lambda: (
                all(len(one.acknowledged) > count for one, count in zip(senders, before[0], strict=True))
                and len(settled) > before[1]
            )

        threads = [threading.Thread(target=send, args=(sender,)) for sender in senders]
        threads.append(threading.Thread(target=work))
        for thread in threads:
            thread.start()
        try:
            for _ in range(2):
                await_until(has_progress())
                server.kill()
                server.start()
            await_until(has_progress())
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        queue = senders[0].queue
        assert [sender.lost() for sender in senders] == [[], [], []]
        assert {queue.audit(message_id)[-1].state for message_id in settled} == {"succeeded"}
        for sender in senders:
            sender.store.close()
