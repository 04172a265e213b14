"""The server's processor time for a message while others wait, and the memory of a message."""

from __future__ import annotations

import time
from typing import Any

import redis

import penstock
from bench.finding import spread

PAYLOAD = b"x" * 200
BATCH = 1000
# Sends, and receives with acks, that are measured at each size.
CALLS = 20


def flatness(port: int, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Microseconds of the server for a message sent, and for one received and acked, by messages waiting. An empty
    queue takes turns with the one that is measured, so that both have the same load beside them."""
    found: dict[str, Any] = {}
    with penstock.connect(f"redis://127.0.0.1:{port}/0") as store, redis.Redis(port=port) as client:
        queue, empty = store.queue("backlog"), store.queue("empty")
        waiting = 0
        for size in sizes:
            while waiting < size:
                queue.send_many([PAYLOAD] * BATCH)
                waiting += BATCH
            _await_rewrite(client)
            samples: list[tuple[float, float, float, float]] = []
            for _ in range(rounds):
                beside = _sends(client, empty), _lives(client, empty)
                samples.append((_sends(client, queue), _lives(client, queue), *beside))
            found[str(size)] = {
                "send_microseconds": spread([one[0] for one in samples]),
                "receive_microseconds": spread([one[1] for one in samples]),
                "send_ratio": spread([one[0] / one[2] for one in samples]),
                "receive_ratio": spread([one[1] / one[3] for one in samples]),
            }
        queue.delete()
        empty.delete()
    return found


def _await_rewrite(client: redis.Redis) -> None:
    """While it rewrites its append-only file, a server copies every page that it changes: a matter of its settings."""
    while True:
        persistence: Any = client.info("persistence")
        if not persistence["aof_rewrite_in_progress"]:
            return
        time.sleep(0.1)


def _used(client: redis.Redis) -> float:
    cpu: Any = client.info("cpu")
    return float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])


def _sends(client: redis.Redis, queue: penstock.Queue) -> float:
    before = _used(client)
    for _ in range(CALLS):
        queue.send_many([PAYLOAD] * BATCH)
    return 1e6 * (_used(client) - before) / (CALLS * BATCH)


def _lives(client: redis.Redis, queue: penstock.Queue) -> float:
    before = _used(client)
    for _ in range(CALLS):
        queue.ack_many(queue.receive(limit=BATCH))
    return 1e6 * (_used(client) - before) / (CALLS * BATCH)


def memory(port: int, count: int) -> dict[str, float]:
    """Bytes of a waiting message, and what it costs more when it has been processed by the thousand or alone."""
    found: dict[str, float] = {}
    with penstock.connect(f"redis://127.0.0.1:{port}/0") as store, redis.Redis(port=port) as client:
        queue = store.queue("memory")
        queue.send(PAYLOAD)
        queue.receive()[0].ack()
        for name, batch in (("thousand", BATCH), ("alone", 1)):
            empty = _bytes(client)
            for _ in range(0, count, BATCH):
                queue.send_many([PAYLOAD] * BATCH)
            waiting = _bytes(client)
            for _ in range(0, count, batch):
                queue.ack_many(queue.receive(limit=batch))
            found["waiting"] = (waiting - empty) / count
            found[f"finished by the {name}" if batch > 1 else f"finished {name}"] = (_bytes(client) - empty) / count
        queue.delete()
    return found


def _bytes(client: redis.Redis) -> int:
    time.sleep(0.2)
    used: Any = client.info("memory")
    return int(used["used_memory_dataset"])
