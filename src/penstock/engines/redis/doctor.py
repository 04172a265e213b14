"""Health of a store on Redis: version, durability, memory and stalled work, each with advice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.domain.results import Check
from penstock.domain.timestamps import SECOND
from penstock.engines import flaws, health
from penstock.engines.flaws import Choices, Flaw
from penstock.engines.redis import library, migration

if TYPE_CHECKING:
    from penstock.engines.redis.engine import RedisEngine

LATE_TICK = 120 * SECOND


def examine(engine: RedisEngine) -> list[Check]:
    queues = engine.queues()
    checks = [*_server(engine), *_durability(engine), *_replicas(engine), *_memory(engine)]
    checks += flaws.checks(flaws_of(engine, flaws.NOTHING_CHOSEN))
    ask = _Answers(engine, [one.name for one in queues])
    checks += health.flow(ask, [(one, engine.stats(one.name)) for one in queues])
    return checks


def _server(engine: RedisEngine) -> Iterator[Check]:
    versions = migration.server_versions(engine.database)
    found = ", ".join(sorted({f"{product} {version}" for version, product in versions}))
    yield Check("server", "ok", f"{found}, {len(versions)} primaries" if engine.database.nodes.is_cluster else found)
    if migration.is_current(engine.database):
        yield Check("schema", "ok", f"functions of version {library.VERSION}")
    else:
        yield Check(
            "schema", "warning", "the functions on the server are not those of this version", "penstock migrate"
        )


def _durability(engine: RedisEngine) -> Iterator[Check]:
    found = migration.settings(engine.database, "append*")
    if found is None:
        yield Check("durability", "warning", "the user may not read the settings", "grant config|get to see them")
        return
    # Of a cluster the node that keeps least.
    settings = min(found, key=lambda one: (one.get("appendonly") == "yes", one.get("appendfsync") == "always"))
    if settings.get("appendonly") != "yes":
        finding = "appendonly is off: what was sent since the last snapshot is lost when the server ends"
        yield Check("durability", "warning", finding, "set appendonly yes and appendfsync always")
    elif settings.get("appendfsync") != "always":
        finding = (
            f"appendfsync is {settings.get('appendfsync')}: about a second of calls is lost when the machine fails"
        )
        yield Check("durability", "warning", finding, "set appendfsync always, if that is too much")
    else:
        yield Check("durability", "ok", "appendfsync always: a call is on the disk when it returns")


def _replicas(engine: RedisEngine) -> Iterator[Check]:
    """A primary of a cluster without a replica takes its queues with it."""
    if not engine.database.nodes.is_cluster:
        return
    counts = {node: info["connected_slaves"] for node, info in engine.database.each("INFO", "replication")}
    alone = sorted(node for node, count in counts.items() if count == 0)
    if alone:
        finding = f"no replica follows {', '.join(alone)}: its queues are lost with it"
        yield Check("replicas", "warning", finding, "add a replica: redis-cli --cluster add-node --cluster-slave")
    else:
        yield Check("replicas", "ok", f"every primary has a replica, {sum(counts.values())} in all")


def _memory(engine: RedisEngine) -> Iterator[Check]:
    found = migration.settings(engine.database, "maxmemory*") or []
    evictions = [one.get("maxmemory-policy", "noeviction") for one in found if one.get("maxmemory", "0") != "0"]
    eviction = next((one for one in evictions if one != "noeviction"), None)
    if eviction is not None:
        finding = f"maxmemory-policy is {eviction}: the server deletes messages when its memory is full"
        yield Check("memory", "error", finding, "set maxmemory-policy noeviction")
    else:
        yield Check("memory", "ok", "the server deletes nothing by itself")


class _Answers:
    """The answers to the questions of `health.flow`."""

    def __init__(self, engine: RedisEngine, queues: list[str]) -> None:
        self._engine = engine
        self._found: list[tuple[str, list[Any]]] = []
        for name, part in [(one, part) for one in queues for part in engine.parts(one)]:
            found = engine.database.read("health", part)
            if found:
                self._found.append((name, found))

    def __call__(self, question: str) -> list[tuple[Any, ...]]:
        answer: list[tuple[Any, ...]] = getattr(self, question)()
        return answer

    def stuck_leases(self) -> list[tuple[Any, ...]]:
        return [(queue, group.decode(), count) for queue, found in self._found for group, count in found[0]]

    def late_held(self) -> list[tuple[Any, ...]]:
        return [(queue, found[1]) for queue, found in self._found if found[1]]

    def late_schedules(self) -> list[tuple[Any, ...]]:
        now = self._engine.now()
        return [
            (one.name,)
            for one in self._engine.schedules()
            if one.next_at is not None and one.next_at.timestamp() * SECOND < now - LATE_TICK
        ]

    def silent_groups(self) -> list[tuple[Any, ...]]:
        return [(queue, group.decode()) for queue, found in self._found for group in found[2]]

    def carried_groups(self) -> list[tuple[Any, ...]]:
        return [(queue, reason.decode()) for queue, found in self._found for reason in found[3]]

    def dead_letter_count(self) -> list[tuple[Any, ...]]:
        return [(sum(found[4] for _, found in self._found),)]

    def open_batches(self) -> list[tuple[Any, ...]]:
        return [(queue, batch.decode()) for queue, found in self._found for batch in found[5]]

    def paused_queues(self) -> list[tuple[Any, ...]]:
        return [(one.name,) for one in self._engine.queues() if one.policy.paused]


def flaws_of(engine: RedisEngine, choices: Choices) -> list[Flaw]:
    """Batches that were opened by mistake: nobody will start them."""
    before = engine.now() - flaws.STRANDED_SECONDS * SECOND
    end = engine.batch_start if choices.batches == "start" else engine.batch_cancel
    return [
        flaws.stranded(one, name.decode(), count, choices.batches, partial(end, one, name.decode()))
        for one in engine.database.queue_names()
        for part in engine.parts(one)
        for name, count, newest in engine.database.read("health", part)[6]
        if newest <= before
    ]
