"""Random walks of several clients with open transactions that receive, settle, send, commit, roll back and die: each
message is delivered under one live lease at most, none is lost, and attempts have no gaps."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

import psycopg
import pytest

from penstock import Ack, Queue, Store

RECEIVE = "select id::text, token, attempt from penstock.receive('orders', \"limit\" => %s, lease_seconds => 3600)"
SETTLE = {
    "ack": "select penstock.ack('orders', %s, %s)",
    "nak": "select penstock.nak('orders', %s, %s, delay_seconds => 0)",
}


@dataclass(frozen=True)
class Life:
    """What is known of a message: how often it was delivered, by which client it is held, whether it has ended."""

    attempts: int = 0
    holder: int | None = None
    token: int = 0
    is_done: bool = False


@dataclass
class Client:
    """A connection with a transaction, and what it changed in it."""

    number: int
    url: str
    changes: dict[str, Life] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.connection = psycopg.connect(self.url, options="-c statement_timeout=30s")


class Walk:
    def __init__(self, url: str, queue: Queue, seed: int) -> None:
        self.random = random.Random(seed)
        self.queue = queue
        self.lives: dict[str, Life] = {}
        self.clients = [Client(number, url) for number in range(4)]
        self.watcher = psycopg.connect(url, autocommit=True)
        self.others_send(self.clients[0])

    def run(self, steps: int) -> None:
        actions: list[Callable[[Client], None]] = [
            self.receive, self.receive, self.receive, self.settle, self.settle, self.send, self.commit, self.roll_back,
            self.work_briefly, self.others_send, self.others_send, self.kill,
        ]  # fmt: skip
        for _ in range(steps):
            self.random.choice(actions)(self.random.choice(self.clients))
        for client in self.random.sample(self.clients, len(self.clients)):
            self.random.choice([self.commit, self.roll_back])(client)
        self.check_rest()

    def receive(self, client: Client) -> None:
        limit = self.random.choice([1, 1, 2, 5])
        for message_id, token, attempt in client.connection.execute(RECEIVE, [limit]).fetchall():
            self.check_free(message_id, client, attempt)
            client.changes[message_id] = Life(attempt, client.number, token)

    def check_free(self, message_id: str, client: Client | None, attempt: int) -> None:
        for other in self.clients:
            assert other is client or message_id not in other.changes, "it is in another open transaction"
        life = self.lives.get(message_id, Life())
        if client is not None:
            life = client.changes.get(message_id, life)
        assert not life.is_done, "it has ended"
        assert life.holder is None, "it has a live lease"
        assert attempt == life.attempts + 1

    def settle(self, client: Client) -> None:
        lives = {
            message_id: life
            for message_id, life in {**self.lives, **client.changes}.items()
            if life.holder == client.number and not life.is_done
        }
        if lives:
            message_id = self.random.choice(sorted(lives))
            verb = self.random.choice(["ack", "ack", "nak"])
            client.connection.execute(SETTLE[verb], [message_id, lives[message_id].token])
            client.changes[message_id] = replace(lives[message_id], holder=None, is_done=verb == "ack")

    def send(self, client: Client) -> None:
        row = client.connection.execute("select penstock.send('orders', '1')::text").fetchone()
        assert row is not None
        client.changes[row[0]] = Life()

    def others_send(self, client: Client) -> None:
        for message_id in self.queue.send_many([b"x"] * self.random.choice([1, 3])):
            self.lives[message_id] = Life()

    def work_briefly(self, client: Client) -> None:
        deliveries = self.queue.receive(limit=self.random.choice([1, 2]), lease_seconds=3600)
        for delivery in deliveries:
            self.check_free(delivery.id, None, delivery.attempt)
            self.lives[delivery.id] = Life(delivery.attempt, is_done=True)
        self.queue.settle([Ack(delivery) for delivery in deliveries])

    def commit(self, client: Client) -> None:
        client.connection.commit()
        self.lives.update(client.changes)
        client.changes = {}

    def roll_back(self, client: Client) -> None:
        client.connection.rollback()
        client.changes = {}

    def kill(self, client: Client) -> None:
        """Its session ends in the middle of the transaction; the client comes back with another."""
        self.watcher.execute("select pg_terminate_backend(%s, 5000)", [client.connection.info.backend_pid])
        client.connection.close()
        client.connection = psycopg.connect(client.url, options="-c statement_timeout=30s")
        client.changes = {}

    def check_rest(self) -> None:
        free = {message_id for message_id, life in self.lives.items() if life.holder is None and not life.is_done}
        rest = []
        while deliveries := self.queue.receive(limit=100):
            rest += deliveries
        assert sorted(delivery.id for delivery in rest) == sorted(free)
        for delivery in rest:
            assert delivery.attempt == self.lives[delivery.id].attempts + 1
        stats = self.queue.stats("default")
        assert stats.total == len(self.lives)
        assert stats.done == sum(life.is_done for life in self.lives.values())
        for client in self.clients:
            client.connection.close()
        self.watcher.close()


@pytest.mark.parametrize("seed", range(6))
def test_random_walks(postgres_url: str, store: Store, seed: int) -> None:
    queue = store.queue("orders", max_retries=None, shards=1 + seed % 2)
    Walk(postgres_url, queue, seed).run(150)


class Crowd:
    """Clients at the same time: some keep their transactions open for a while, and commit, roll back or die; others
    receive and ack in transactions of their own."""

    def __init__(self, url: str, queue: Queue, total: int) -> None:
        self.url = url
        self.queue = queue
        self.total = total

    def run(self) -> None:
        with ThreadPoolExecutor(6) as threads:
            done = [threads.submit(self.work_openly, seed) for seed in range(4)]
            done += [threads.submit(self.work_briefly) for _ in range(2)]
            for one in done:
                one.result(100)

    def is_over(self) -> bool:
        return self.queue.stats("default").done == self.total

    def work_openly(self, seed: int) -> None:
        choice = random.Random(seed)
        while not self.is_over():
            with suppress(psycopg.OperationalError), psycopg.connect(self.url) as connection:
                for _ in range(20):
                    self.work_in_one_transaction(connection, choice)

    def work_in_one_transaction(self, connection: psycopg.Connection, choice: random.Random) -> None:
        for _ in range(choice.choice([1, 1, 2])):
            for message_id, token, _ in connection.execute(RECEIVE, [choice.choice([1, 3, 10])]).fetchall():
                connection.execute(SETTLE["ack"], [message_id, token])
            time.sleep(choice.choice([0, 0, 0.001, 0.03]))
        end = choice.choice(["commit", "commit", "rollback", "die"])
        if end == "die":
            connection.execute("select pg_terminate_backend(pg_backend_pid())")
        getattr(connection, end)()

    def work_briefly(self) -> None:
        while not self.is_over():
            self.queue.ack_many(self.queue.receive(limit=3))


@pytest.mark.parametrize("shards", [1, 2])
def test_a_crowd_acks_each_message_once(postgres_url: str, store: Store, shards: int) -> None:
    queue = store.queue("orders", shards=shards)
    for _ in range(15):
        queue.send_many([b"x"] * 40)
    Crowd(postgres_url, queue, 600).run()
    with psycopg.connect(postgres_url) as connection:
        acks = connection.execute(
            "select one, count(*) from penstock.audit, "
            "unnest(penstock._list_positions(penstock._expand_positions(first, last, positions))) "
            "as one where event = 'ack' group by one"
        ).fetchall()
        left = connection.execute(
            "select (select count(*) from penstock.lease), (select count(*) from penstock.tracked)"
        )
        assert len(acks) == 600
        assert {count for _, count in acks} == {1}
        assert left.fetchone() == (0, 0)
