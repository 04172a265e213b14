"""`python -m bench.redis_cluster`: processor time of the servers per message, with all queues, or all shards of one,
on one primary and spread over three. Processor time, because all servers share this machine."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence

import penstock
from penstock.domain.message import draft
from penstock.engines.contract import POSITION
from penstock.engines.redis import shards
from tests.engines.redis.cluster import PRIMARIES, ClusterServer, RedisServers

SHARDS = 12
ORDERS = ("in turns", "in a row")
LEASE_SECONDS = 30
PAYLOAD = b"x" * 200
IDLE_SECONDS = 3


def main() -> None:
    arguments = _arguments()
    with RedisServers(node_timeout_seconds=60) as servers, penstock.connect(servers.url) as store:
        store.migrate()
        idle = _idle(servers.primaries)
        if arguments.only in (None, "queues"):
            _measure_queues(store, servers, arguments, idle)
        if arguments.only in (None, "shards"):
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
    """One queue, filled and then worked off, with equally many shards: their slots are on one primary, or on three. In
    turns, each call is to the next shard. In a row, the calls to a shard follow each other, and so do the shards of a
    primary: servers that share a processor push each other out of its caches, which servers with one of their own
    do not."""
    print(f"\n| calls | primaries with the {SHARDS} shards | messages | µs per message | share of each primary |")
    print("|---|---|---|---|---|")
    queues = _shards_on_primaries(store, servers)
    calls = arguments.batches * arguments.queues // SHARDS
    turns = [shard for _ in range(calls) for shard in range(SHARDS)]
    cases = [(order, primaries) for order in ORDERS for primaries in queues]
    found: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    # A first round is not counted: the client learns where the slots are, and the servers load pages.
    for number in range(arguments.rounds + 1):
        for order, primaries in cases if number % 2 else reversed(cases):
            names = [queues[primaries][shard] for shard in (turns if order == ORDERS[0] else sorted(turns))]
            count, used = _load_shards(store, servers.primaries, names, arguments.batch_size, idle)
            if number:
                found[order, primaries].append(sum(used) / count * 1e6)
                shares = ", ".join(f"{one / sum(used):.1%}" for one in used[:primaries])
                print(f"| {order} | {primaries} | {count:,} | {sum(used) / count * 1e6:.2f} | {shares} |", flush=True)
    for order in ORDERS:
        one, three = (statistics.median(found[order, primaries]) for primaries in queues)
        print(f"\nMedians, {order}: {one:.2f} µs on one primary, {three:.2f} µs on three: {three / one:.3f}")


def _shards_on_primaries(store: penstock.Store, servers: RedisServers) -> dict[int, list[str]]:
    """The shards of two queues: one on a single primary, the other on all."""
    found: dict[int, list[str]] = {}
    for primaries in (1, PRIMARIES):
        queue = store.queue(f"orders of {primaries}")
        found[primaries] = shards.names(queue.name, SHARDS)
        for name in found[primaries] if primaries == 1 else ():
            key = f"{{q:{shards.tag(name)}}}"
            if servers.owner(key) is not servers.primaries[0]:
                servers.move_slot(key, servers.primaries[0])
        store.queue(queue.name, shards=SHARDS)
        queue.receive()  # makes the group in every shard
    return found


def _load_shards(
    store: penstock.Store, primaries: Sequence[ClusterServer], names: list[str], size: int, idle: float
) -> tuple[int, list[float]]:
    """Send to these shards, then receive from them and ack: the calls that a client of the queue makes, in a given
    order."""
    engine = store.engine
    drafts = [draft(PAYLOAD)] * size
    before, began = [_processor_seconds(node) for node in primaries], time.monotonic()
    for name in names:
        engine.send(name, drafts)
    for name in names:
        receipt = engine.receive(name, "default", "bench", size, LEASE_SECONDS)
        assert len(receipt.rows) == size
        assert engine.ack_all(name, "default", receipt.token, [row[POSITION] for row in receipt.rows])
    spent = idle * (time.monotonic() - began)
    used = [_processor_seconds(node) - start - spent for node, start in zip(primaries, before, strict=True)]
    return len(names) * size, [max(0.0, one) for one in used]


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
) -> tuple[int, list[float]]:
    """Send, receive and ack; return how many messages, and the seconds that each primary spent on them."""
    before, began = [_processor_seconds(node) for node in primaries], time.monotonic()
    for _ in range(batches):
        for queue in queues:
            queue.send_many([PAYLOAD] * size)
            queue.ack_many(queue.receive(limit=size))
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
    parser.add_argument("--only", choices=("queues", "shards"), help="measure this part")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queues", type=int, default=30)
    parser.add_argument("--batches", type=int, default=10, help="batches of each queue")
    parser.add_argument("--batch-size", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
