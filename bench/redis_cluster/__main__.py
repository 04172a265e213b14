"""`python -m bench.redis_cluster`: processor time of the servers per message, with all queues on one primary and with
queues on each of three, and with one queue in one slot and spread over several. Processor time, because all servers
share this machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import penstock
from tests.engines.redis.cluster import ClusterServer, RedisServers

PAYLOAD = b"x" * 200
IDLE_SECONDS = 3


def main() -> None:
    arguments = _arguments()
    with RedisServers(node_timeout_seconds=60) as servers, penstock.connect(servers.url) as store:
        store.migrate()
        idle = _idle(servers.primaries)
        _measure_queues(store, servers, arguments, idle)
        _measure_shards(store, servers, arguments, idle)


def _measure_queues(store: penstock.Store, servers: RedisServers, arguments: argparse.Namespace, idle: float) -> None:
    print("| primaries with queues | messages | µs per message | share of each primary |")
    print("|---|---|---|---|")
    for _ in range(arguments.rounds):
        for primaries in (servers.primaries[:1], servers.primaries):
            names = list(_names(servers, primaries, arguments.queues))
            queues = [store.queue(name) for name in names]
            count, used = _load(servers.primaries, queues, arguments.batches, arguments.batch_size, idle)
            busy = [one for node, one in zip(servers.primaries, used, strict=True) if node in primaries]
            shares = ", ".join(f"{one / sum(busy):.1%}" for one in busy)
            print(f"| {len(primaries)} | {count:,} | {sum(used) / count * 1e6:.1f} | {shares} |", flush=True)
            for queue in queues:
                queue.delete()


def _measure_shards(store: penstock.Store, servers: RedisServers, arguments: argparse.Namespace, idle: float) -> None:
    """One queue, filled and then worked off."""
    print("\n| shards of one queue | messages | µs per message | share of each busy primary |")
    print("|---|---|---|---|")
    for _ in range(arguments.rounds):
        for shards in (1, 3, 12):
            queue = store.queue("orders", shards=shards)
            batches = arguments.batches * arguments.queues // 12 * 12
            count, used = _load(servers.primaries, [queue], batches, arguments.batch_size, idle, fills=True)
            busy = sorted(used)[-min(shards, len(used)) :]
            shares = ", ".join(f"{one / sum(busy):.1%}" for one in busy)
            print(f"| {shards} | {count:,} | {sum(busy) / count * 1e6:.1f} | {shares} |", flush=True)
            queue.delete()


def _names(servers: RedisServers, primaries: Sequence[ClusterServer], count: int) -> Iterator[str]:
    """Names of queues, equally many on each primary."""
    left = {node.port: count // len(primaries) for node in primaries}
    number = 0
    while any(left.values()):
        port = servers.owner(f"{{q:orders {number}}}").port
        if left.get(port):
            left[port] -= 1
            yield f"orders {number}"
        number += 1


def _load(
    primaries: Sequence[ClusterServer],
    queues: Sequence[penstock.Queue],
    batches: int,
    size: int,
    idle: float,
    *,
    fills: bool = False,
) -> tuple[int, list[float]]:
    """Send, receive and ack; return how many messages, and the seconds that each primary spent on them. With `fills`
    all are sent before any is received."""
    before, began = [_processor_seconds(node) for node in primaries], time.monotonic()
    for _ in range(batches):
        for queue in queues:
            queue.send_many([PAYLOAD] * size)
            if not fills:
                queue.ack_many(queue.receive(limit=size))
    for queue in queues if fills else ():
        while taken := queue.receive(limit=size):
            queue.ack_many(taken)
    spent = idle * (time.monotonic() - began)
    used = [_processor_seconds(node) - start - spent for node, start in zip(primaries, before, strict=True)]
    return batches * len(queues) * size, [max(0.0, one) for one in used]


def _idle(primaries: Sequence[ClusterServer]) -> float:
    """What a primary without calls spends per second."""
    before = sum(_processor_seconds(node) for node in primaries)
    time.sleep(IDLE_SECONDS)
    after = sum(_processor_seconds(node) for node in primaries)
    return (after - before) / len(primaries) / IDLE_SECONDS


def _processor_seconds(node: ClusterServer) -> float:
    found = node.command("INFO", "cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.redis_cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queues", type=int, default=30)
    parser.add_argument("--batches", type=int, default=10, help="batches of each queue")
    parser.add_argument("--batch-size", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
