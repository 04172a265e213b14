"""The plan of a run: its queues with their policies, and the arguments of its processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PROTOCOLS = ("python", "async", "resp", "http", "sql")
FAULTS = ("kill", "stop", "freeze", "cut", "hold", "rollback", "cancel", "serve", "server", "restore")
SERVERS = ("sqlite", "embedded", "pooled", "pair", "async-pair", "mariadb", "redis", "redis-cluster")
LEASE_SECONDS = 1.5
BACKOFF_SECONDS = 0.2
POISON = "poison"
AUDIT_GROUP = "audit"
# The group whose cursor the operator moves.
REPLAY_GROUP = "replay"
# The file with the position up to which the follower has read.
FOLLOWER_MARK = "follower.mark"
# Backoffs are exact, so that an early redelivery is detected.
_BACKOFF = {
    "backoff_base_seconds": BACKOFF_SECONDS,
    "backoff_factor": 1,
    "backoff_jitter_seconds": 0,
    "backoff_max_seconds": 1,
}


@dataclass(frozen=True)
class QueuePlan:
    """One queue of a run: its policy, its groups, and whether it is read as a stream or by workers."""

    kind: str
    policy: dict[str, Any]
    groups: tuple[str, ...] = ("default",)
    has_workers: bool = False
    is_stream: bool = False

    def event(self, name: str) -> dict[str, Any]:
        """The declaration of the queue as an event for the checker."""
        return {
            "queue": name,
            "groups": self.groups,
            "primary": self.policy.get("primary_group", "default"),
            "max_retries": self.policy.get("max_retries"),
            "at_most_once": self.policy.get("delivery") == "at_most_once",
            "ordered": self.policy.get("ordered", False),
            "backoff": BACKOFF_SECONDS,
            "has_workers": self.has_workers,
        }


# Finished messages of two queues are removed a second after their end: retention runs all the time.
QUEUES = (
    QueuePlan("work", {"max_retries": 4, **_BACKOFF}, ("default", AUDIT_GROUP, REPLAY_GROUP)),
    QueuePlan("once", {"max_retries": 3, "delivery": "at_most_once", **_BACKOFF}),
    QueuePlan("ordered", {"max_retries": 3, "ordered": True, "shards": 3, "history_seconds": 1, **_BACKOFF}),
    QueuePlan("addressed", {"max_retries": 20, **_BACKOFF}),
    QueuePlan("batches", {"max_retries": 20, **_BACKOFF}),
    QueuePlan("ticks", {"max_retries": 20, **_BACKOFF}),
    QueuePlan(
        "jobs", {"max_retries": 6, "lease_seconds": LEASE_SECONDS, "history_seconds": 1, **_BACKOFF}, has_workers=True
    ),
    QueuePlan("stream", {"primary_group": None}, (), is_stream=True),
)


# Of the queues that are spread over slots on a cluster; the others are in one slot.
SPREAD = {"work": 3, "once": 3, "ordered": 3, "batches": 3, "jobs": 3, "stream": 3}


@dataclass
class ActorPlan:
    """The arguments of one process, passed as JSON on its command line."""

    role: str
    process: str
    folder: str
    seed: int
    url: str
    queues: dict[str, str]
    protocol: str = "python"
    resp_url: str = ""
    http_url: str = ""
    faults: list[str] = field(default_factory=list)
    handler: str | None = None
    clock_ahead_seconds: float = 0.0

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decoded(text: str) -> ActorPlan:
        return ActorPlan(**json.loads(text))

    @property
    def histories(self) -> Path:
        return Path(self.folder)

    @property
    def engine(self) -> str:
        from penstock.chaos.address import engine_of

        return engine_of(self.url)
