"""Who takes part, each in its fastest way: whole lives of messages, sent and then processed."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import redis

import penstock

PAYLOAD = b"x" * 200
FOLDER = Path(__file__).parent
CLIENTS = Path(sys.prefix) / "clients"
# arq needs an older Redis client than taskiq-redis.
JOBS, FRAMEWORKS = CLIENTS / "redis-jobs", CLIENTS / "frameworks"
NODE = FOLDER / "node"
LONGEST_SECONDS = 300
PENSTOCK, WORKER, STREAMS = "Penstock", "Penstock worker", "Redis Streams"
_numbers = itertools.count(1)


class Lives(NamedTuple):
    send_seconds: float
    work_seconds: float

    def per_second(self, count: int) -> float:
        return count / (self.send_seconds + self.work_seconds)


def penstock_lives(port: int, batch: int, count: int) -> Lives:
    with penstock.connect(f"redis://127.0.0.1:{port}/0") as store:
        queue = store.queue(f"bench-{next(_numbers)}")
        queue.send("first")
        queue.receive()[0].ack()
        payloads = [PAYLOAD] * batch
        began = time.perf_counter()
        for _ in range(0, count, batch):
            if batch == 1:
                queue.send(PAYLOAD)
            else:
                queue.send_many(payloads)
        sent = time.perf_counter()
        for _ in range(0, count, batch):
            deliveries = queue.receive(limit=batch)
            assert len(deliveries) == batch
            if batch == 1:
                deliveries[0].ack()
            else:
                queue.ack_many(deliveries)
        ended = time.perf_counter()
        queue.delete()
        return Lives(sent - began, ended - sent)


def streams_lives(port: int, batch: int, count: int) -> Lives:
    """A pipeline of XADD for each batch."""
    with redis.Redis(port=port, protocol=2) as client:
        name = f"stream-{next(_numbers)}"
        client.xgroup_create(name, "workers", "0", mkstream=True)
        began = time.perf_counter()
        for _ in range(0, count, batch):
            pipeline = client.pipeline(transaction=False)
            for _ in range(batch):
                pipeline.xadd(name, {b"p": PAYLOAD})
            pipeline.execute()
        sent = time.perf_counter()
        for _ in range(0, count, batch):
            found: Any = client.xreadgroup("workers", "one", {name: ">"}, count=batch)
            ids = [one for one, _ in found[0][1]]
            assert client.xack(name, "workers", *ids) == batch
        ended = time.perf_counter()
        client.delete(name)
        return Lives(sent - began, ended - sent)


def worker_lives(name: str, folder: Path) -> Callable[[int, int, int], Lives]:
    def lives(port: int, batch: int, count: int) -> Lives:
        # The last folder is for the parser in C that makes every Redis client faster.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, FOLDER, JOBS)))}
        program = "import jobs; jobs.main()"
        return _told([sys.executable, "-c", program, name, str(port), str(batch), str(count)], environment)

    return lives


def bullmq_lives(port: int, batch: int, count: int) -> Lives:
    return _told(["node", str(NODE / "role.mjs"), str(port), str(batch), str(count)], dict(os.environ))


def _told(command: list[str], environment: dict[str, str]) -> Lives:
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LONGEST_SECONDS)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr}")
    return Lives(**json.loads(done.stdout.splitlines()[-1]))


# Calls of a client, side by side; and workers with handlers, side by side.
CONTENDERS: dict[str, Callable[[int, int, int], Lives]] = {
    PENSTOCK: penstock_lives,
    STREAMS: streams_lives,
    WORKER: worker_lives("penstock", Path(penstock.__file__).parents[1]),
    "RQ": worker_lives("rq", JOBS),
    "Dramatiq": worker_lives("dramatiq", JOBS),
    "taskiq-redis": worker_lives("taskiq", FRAMEWORKS),
    "arq": worker_lives("arq", JOBS),
    "BullMQ": bullmq_lives,
}
LIBRARIES = tuple(name for name in CONTENDERS if name not in (PENSTOCK, STREAMS, WORKER))
