"""A run: set up, disturb for a while, drain, judge, clean up."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import penstock
from penstock.chaos import history
from penstock.chaos.address import check_url, engine_of, is_cluster, through_proxy
from penstock.chaos.checker import check
from penstock.chaos.checker.smallest import smallest
from penstock.chaos.checker.timeline import Violation
from penstock.chaos.crew import Crew
from penstock.chaos.drain import Drain
from penstock.chaos.history import Event, Recorder, clock
from penstock.chaos.nemesis import Nemesis
from penstock.chaos.plan import FAULTS, FOLLOWER_MARK, PROTOCOLS, QUEUES, SPREAD, ActorPlan
from penstock.chaos.ports.port import LOST
from penstock.chaos.postgres_server import OwnPair, OwnPostgres
from penstock.chaos.proxy import Proxy
from penstock.chaos.redis_cluster import OwnCluster
from penstock.chaos.serve_process import ServeProcess
from penstock.chaos.server import Crashing, OwnFile, OwnMariadb, OwnPooler, OwnRedis, OwnStore, Restored
from penstock.chaos.store_roles import insist, undo_prepared
from penstock.chaos.watch import Watch

# A run of this length must not fill the store: finished messages are kept briefly, and dead letters are removed once
# they are recorded.
LONG_SECONDS = 300
LONG_HISTORY_SECONDS = 20
COLLECT_SECONDS = 10
# Events that a run must contain, as an idle run proves nothing. A busy machine gets more time.
WANTED = {"sends": 20, "deliveries": 20, "handler calls": 1}
PATIENCE_SECONDS = 240


@dataclass(frozen=True)
class RunOptions:
    """`url` is None with a store of the run's own, of the kind that `server` names: "sqlite", "mariadb", "redis",
    "redis-cluster", or a PostgreSQL server, "embedded", behind a pooler ("pooled"), or with a standby that takes over,
    "pair" when commits wait for it and "async-pair" when they do not."""

    url: str | None
    seconds: float = 30
    seed: int = 1
    faults: tuple[str, ...] = FAULTS
    protocols: tuple[str, ...] = PROTOCOLS
    handler: str | None = None
    keep: Path | None = None
    samples_seconds: float = 5
    server: str = "embedded"


@dataclass
class Verdict:
    """`problems` are processes that failed by themselves; `growth` lists resources that kept growing."""

    seed: int
    violations: list[Violation]
    counts: dict[str, int]
    problems: list[str] = field(default_factory=list)
    growth: list[str] = field(default_factory=list)
    smallest: list[Event] = field(default_factory=list)
    samples: list[dict[str, float]] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        return [
            f"{self.counts[name]} {name}, {least} wanted" for name, least in WANTED.items() if self.counts[name] < least
        ]

    @property
    def word(self) -> str:
        if self.violations:
            return "violation"
        if self.problems or self.growth:
            return "failed"
        return "unknown" if self.missing else "ok"


def run(options: RunOptions, tell: Callable[[str], None] = lambda text: None) -> Verdict:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        course = Course(options, folder, stack, tell)
        problems = course.play()
        tell("judging")
        events = history.read(course.histories)
        if options.keep is not None:
            shutil.copytree(course.histories, options.keep, dirs_exist_ok=True)
        violations = check(events)
        return Verdict(
            options.seed,
            violations,
            counted(events, course.nemesis.counts),
            problems,
            course.watch.growth(),
            smallest(events, violations[0]) if violations else [],
            course.watch.samples,
        )


class Course:
    """The parts of one run, closed by the stack in reverse order."""

    def __init__(self, options: RunOptions, folder: Path, stack: ExitStack, tell: Callable[[str], None]) -> None:
        self.options = options
        # A statement that is cancelled while it waits for the standby is committed here alone, and PostgreSQL says ok;
        # behind a pooler the setting that cancels it would be that of a session which others use.
        no_faults = ("cancel",) if options.server in ("pair", "async-pair", "pooled") else ()
        self.faults = [fault for fault in options.faults if fault not in no_faults]
        self.tell = tell
        self.histories = folder / "histories"
        self.histories.mkdir()
        self.recorder = Recorder(self.histories, "run")
        prefix = f"chaos-{options.seed}-{secrets.token_hex(3)}"
        self.queues = {one.kind: f"{prefix}-{one.kind}" for one in QUEUES if self._takes_part(one.kind)}
        self.own = self._own_store(folder, stack) if options.url is None else None
        self.url = self._own_url(stack, self.own) if self.own is not None else str(options.url)
        check_url(self.url)
        self.engine = engine_of(self.url)
        self.store = penstock.connect(self.url)
        stack.callback(lambda: self.store.close())
        if self.own is not None:
            self.store.migrate()
        self.crew = Crew(folder)
        self._set_up()
        stack.callback(self._remove)
        proxies = self._front(folder, stack)
        self.serve_process = self._serve_process(folder, stack)
        if self.serve_process is not None:
            proxies += self.serve_process.proxies
        stack.callback(self.crew.close)
        self.watch = Watch(self.url, self.serve_process if "serve" not in options.faults else None)
        own: object = self.own
        crashing = own if isinstance(own, Crashing) and not isinstance(own, OwnPair) else None
        self.nemesis = Nemesis(
            options.seed, self.faults, self.crew, self.recorder, proxies, self.serve_process, crashing
        )
        # When the copy was begun, and when it was done.
        self._copied: tuple[int, int] | None = None
        self._is_restored = "restore" not in self.faults or not isinstance(own, Restored) or isinstance(own, OwnPair)

    @property
    def _is_long(self) -> bool:
        return self.options.seconds >= LONG_SECONDS

    def _takes_part(self, kind: str) -> bool:
        return kind != "stream" or "resp" in self.options.protocols

    def _own_store(self, folder: Path, stack: ExitStack) -> OwnStore:
        place, kind = folder / "server", self.options.server
        kinds: dict[str, Callable[[], OwnStore]] = {
            "sqlite": lambda: OwnFile(place),
            "mariadb": lambda: OwnMariadb(place),
            "redis": lambda: OwnRedis(place),
            "redis-cluster": lambda: OwnCluster(place),
            "pair": lambda: OwnPair(place, synchronous=True),
            "async-pair": lambda: OwnPair(place, synchronous=False),
        }
        own = kinds.get(kind, lambda: OwnPostgres(place))()
        stack.callback(own.close)
        return own

    def _own_url(self, stack: ExitStack, own: OwnStore) -> str:
        """The URL of the server that is in use, through a proxy that is never cut."""
        self._road, url = through_proxy(own.url)
        if self._road is not None:
            stack.callback(self._road.close)
        return url

    def _set_up(self) -> None:
        for one in QUEUES:
            if one.kind in self.queues:
                name = self.queues[one.kind]
                policy = {**({"history_seconds": LONG_HISTORY_SECONDS} if self._is_long else {}), **one.policy}
                if is_cluster(self.url) and one.kind in SPREAD:
                    policy["shards"] = SPREAD[one.kind]
                queue = self.store.queue(name, **policy)
                for group in one.groups:
                    queue.receive(1, group)
                self.recorder.note("queue", **one.event(name))
        name = self.queues["ticks"]
        self.store.schedule(name, "* * * * * *", name, {"chaos": "tick"}, catch_up="all")
        self.recorder.note("schedule", queue=name)

    def _front(self, folder: Path, stack: ExitStack) -> list[Proxy]:
        """The URL of the clients leads through a proxy where there is a server, and through the pooler."""
        url = self.url
        if self.options.url is None and self.options.server == "pooled":
            assert self._road is not None
            pooler = OwnPooler(folder / "pooler", self._road.port)
            stack.callback(pooler.close)
            url = pooler.url
        proxy, self.client_url = through_proxy(url)
        if proxy is None:
            return []
        stack.callback(proxy.close)
        return [proxy]

    def _serve_process(self, folder: Path, stack: ExitStack) -> ServeProcess | None:
        if not {"resp", "http"} & set(self.options.protocols):
            return None
        serve_process = ServeProcess(self.client_url, folder)
        stack.callback(serve_process.close)
        return serve_process

    # -- the play --------------------------------------------------------------------------------------------------

    def play(self) -> list[str]:
        self._start_crew()
        problems: list[str] = []
        self.crew.await_begin(self.histories)
        self.tell(f"disturbing for {self.options.seconds:g} s")
        ends = time.monotonic() + self.options.seconds
        collect_at = time.monotonic() + COLLECT_SECONDS
        while time.monotonic() < ends or not self._has_turned() or not self._has_seen_enough(ends):
            self.nemesis.disturb()
            self._turn(1 - (ends - time.monotonic()) / self.options.seconds)
            if self._is_long and time.monotonic() > collect_at:
                # A frozen process may hold what the run itself waits for.
                self.crew.thaw_due(everybody=True)
                with contextlib.suppress(*LOST):
                    Drain(self.store, self.recorder, self.queues).collect(self._follower_mark())
                    if isinstance(self.own, OwnPostgres):
                        self.own.vacuum()
                collect_at = time.monotonic() + COLLECT_SECONDS
            self.crew.thaw_due()
            self.watch.sample(self.options.samples_seconds)
            problems += self.crew.failures()
            if self.serve_process is not None and (problem := self.serve_process.ensure()):
                problems.append(problem)
        self.tell("draining")
        self.crew.thaw_due(everybody=True)
        problems += self.crew.stop("client", "batcher", "sender", "worker", "sweeper", "operator")
        try:
            self._drain(Drain(self.store, self.recorder, self.queues))
        except penstock.PenstockError as error:
            # The events so far are still checked.
            problems.append(f"the drain ended with {type(error).__name__}: {error}")
        problems += self.crew.stop("follower")
        return problems

    def _follower_mark(self) -> Path | None:
        """The position up to which the stream may be trimmed. A mark from before a restore does not apply to later
        positions."""
        mark = self.histories / FOLLOWER_MARK
        return mark if mark.exists() and self._copied is None else None

    def _has_seen_enough(self, ends: float) -> bool:
        counts = counted(history.read(self.histories), self.nemesis.counts)
        return time.monotonic() > ends + PATIENCE_SECONDS or all(counts[name] >= WANTED[name] for name in WANTED)

    def _turn(self, share: float) -> None:
        """Actions that happen once in a run, after this share of it."""
        if isinstance(self.own, OwnPair) and share > 0.5 and not self.own.has_failed_over:
            self._fail_over(self.own)
        if isinstance(self.own, Restored) and not self._is_restored:
            if self._copied is None and share > 0.4:
                begun = clock()
                self.own.copy()
                self._copied = (begun, clock())
            elif self._copied is not None and share > 0.55:
                self._restore(self.own, *self._copied)

    def _has_turned(self) -> bool:
        return self._is_restored and (not isinstance(self.own, OwnPair) or self.own.has_failed_over)

    def _fail_over(self, pair: OwnPair) -> None:
        """Fail over to the standby. For clients it is a crash, after which the same address leads to the standby."""
        self.recorder.note("crash")
        pair.fail_over()
        self.recorder.note("crash")
        self._lead_to(pair.socket)
        self.nemesis.counts["failover"] += 1

    def _restore(self, own: Restored, begun: int, copied: int) -> None:
        """Restore the store to its copy. Clients of a server keep running; a file is replaced while no process has it
        open."""
        self.crew.thaw_due(everybody=True)

        def restore() -> None:
            own.restore()
            self.recorder.note("restore", since=begun, copied=copied)

        if isinstance(own, OwnPostgres):
            restore()
            self._lead_to(own.socket)
        else:
            self.store.close()
            serve = self.serve_process
            self.crew.restart_all(restore if serve is None else lambda: serve.restart(restore))
            self.store = penstock.connect(self.url)
        self._is_restored = True
        self.nemesis.counts["restore"] += 1

    def _lead_to(self, socket: str) -> None:
        assert self._road is not None
        self._road.lead_to(socket)

    def _start_crew(self) -> None:
        roles = ["worker", "worker", "sweeper", "batcher", "operator"]
        roles += ["sender"] if self.engine != "redis" else []
        roles += ["follower"] if "stream" in self.queues else []
        for protocol in self.options.protocols:
            if protocol != "sql" or self.engine == "postgres":
                self._start("client", protocol)
        for role in roles:
            self._start(role, "python")

    def _start(self, role: str, protocol: str) -> None:
        place = len(self.crew.members)
        self.crew.start(
            ActorPlan(
                role=role,
                process=f"{role}-{protocol}" if role == "client" else role,
                folder=str(self.histories),
                # Room for every process that takes this place: two with one seed would choose the same ids.
                seed=(self.options.seed * 100 + place) * 100_000,
                url=self.client_url,
                queues=self.queues,
                protocol=protocol,
                resp_url=self.serve_process.resp_url if self.serve_process else "",
                http_url=self.serve_process.http_url if self.serve_process else "",
                faults=self.faults,
                handler=self.options.handler,
                clock_ahead_seconds=self._clock_ahead(),
            )
        )

    def _clock_ahead(self) -> float:
        """An upper bound of how far the clock of the store is ahead of this machine's."""
        before = time.time()
        schedule = next(one for one in self.store.schedules() if one.name == self.queues["ticks"])
        if schedule.next_at is None:
            return 0.0
        return max(0.0, schedule.next_at.timestamp() - 1 - before) if self.engine != "sqlite" else 0.0

    def _drain(self, drain: Drain) -> None:
        insist(lambda: self.store.pause_schedule(self.queues["ticks"]))
        if self.engine == "postgres":
            undo_prepared(self.url, self.queues["work"])
        events = history.read(self.histories)
        drain.start_left_batches(events)
        drain.run()
        if not self._is_long:
            drain.replay()
        drain.read_audits(events, self.options.seed)

    def _remove(self) -> None:
        """Delete the queues of the run with their contents."""
        if self.own is not None:
            return
        self.store.unschedule(self.queues["ticks"])
        for name in self.queues.values():
            queue = self.store.queue(name)
            # Killed workers stay registered for a while, and a queue with consumers is not deleted.
            for consumer in queue.consumers():
                queue.register(consumer.name, group=consumer.group).deregister()
            queue.delete()


def counted(events: list[Event], faults: Counter[str]) -> dict[str, int]:
    """Count the events of the run."""
    found = Counter(
        {"sends": 0, "deliveries": 0, "handler calls": 0, "settlements": 0, "refused settlements": 0, "lost replies": 0,
         "dead letters": 0}
    )  # fmt: skip
    for event in events:
        op, kind = event["op"], event["type"]
        if op == "send" and kind == "ok":
            found["sends"] += len(event.get("ids") or [1])
        elif op == "receive" and kind == "ok":
            found["deliveries"] += len(event["taken"])
        elif op == "handle":
            found["deliveries"] += 1
            found["handler calls"] += 1
        elif op == "settle" and kind != "invoke":
            found["settlements" if kind == "ok" else "refused settlements"] += kind in ("ok", "fail")
        elif op == "dead":
            found["dead letters"] += 1
        found["lost replies"] += kind == "unknown"
    return {**found, "events": len(events), **{f"fault {name}": count for name, count in sorted(faults.items())}}
