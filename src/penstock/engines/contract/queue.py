"""The queue itself: messages, groups, leases, dead letters and their maintenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.domain.lifecycle import State
from penstock.domain.message import Draft, Message
from penstock.domain.policy import Policy
from penstock.domain.results import (
    AddressState,
    ConsumerInfo,
    DeadLetter,
    GroupStats,
    LeaseInfo,
    QueueInfo,
    SweepReport,
)
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract.capabilities import Capabilities
from penstock.engines.contract.receipt import Receipt

Operation = Callable[[], Any]
# The place of a dead letter in the order of paging: when it died, its position, its group.
Edge = tuple[int, int, str]


class QueueContract(Protocol):
    """The part of the contract that every engine implements."""

    name: str
    capabilities: Capabilities

    # -- the store ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release every resource; other processes that use the same database are not affected."""

    def now(self) -> int:
        """The engine's clock, in microseconds."""

    def together(self, operations: Sequence[Operation]) -> list[Any]:
        """Run calls of this engine in one transaction, each as a savepoint: a result or an exception for each.
        Without `rolls_back` each call commits by itself."""

    def end_interrupted(self) -> None:
        """End what a call of this thread has left open that an exception from outside, such as one of a signal handler,
        cut short between two of its lines; nothing of it takes effect any more."""

    def wait(self, seen: int, timeout_seconds: float) -> int:
        """Block until something was committed after `seen`, by this process or another, or until the timeout."""

    def seen(self) -> int:
        """A commit counter, to be passed to `wait`."""

    # -- queues -------------------------------------------------------------------------------------------------------

    def declare(self, queue: str, changes: dict[str, Any]) -> Policy:
        """Create the queue if it is new, set the given policy fields, and return the whole policy."""

    def policy(self, queue: str) -> Policy:
        """The policy in force; the default one for a queue that does not exist yet."""

    def has(self, queue: str) -> bool:
        """Whether the queue exists, at a cost that does not depend on the number of queues."""

    def queues(self) -> list[QueueInfo]:
        """All queues by name."""

    def flush(self, queue: str) -> int:
        """Remove every message, as if the queue had just been created; leases end, nothing is redelivered. Returns the
        number of messages."""

    def delete(self, queue: str) -> int:
        """Remove the queue itself: its messages, groups, batches and policy. Returns the number of messages. Refused
        while something would create it again (a schedule that sends to it, a registered consumer); NotFound for an
        unknown name. A concurrent send creates the queue anew."""

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, queue: str, drafts: Sequence[Draft], transaction: object = None) -> list[str]:
        """(new) -> ready, or held when delayed or in a batch that has not started; the ids in the order given. An id
        that the queue already has is not sent again. Messages without a key are spread over the shards of an unordered
        queue. With `transaction` it commits with the caller's own writes."""

    def receive(
        self,
        queue: str,
        group: str | None,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> Receipt:
        """ready -> leased for up to `limit` messages, best priority first, due retries before new ones; first makes
        due messages of the group ready and reclaims its lapsed leases. No group means the primary one. A group is made
        by its first receive, or with `needs_group` refused (NotFound) when it is not there. A consumer that was removed
        for its missed heartbeats is refused (ConsumerRemoved) until it registers again, or for a day."""

    def receive_each(
        self,
        queue: str,
        group: str | None,
        shares: Sequence[tuple[str, int]],
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> list[Receipt]:
        """Several receives at once, each (consumer, limit): as one after the other, but they may share a token."""

    def ready_in(self, queue: str, group: str | None) -> float | None:
        """Seconds until a receive could return something: 0 for now, None for not before the next commit."""

    def settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        """leased -> what `settlement.decide` says, each by its token; a stale token answers LeaseLost and changes
        nothing, the same settle again answers as before. A token is stale when its lease has ended; where only the
        deadline of the message ended it, when a receive or sweep has taken the message back. In an ordered queue
        nothing ends before what was handed out before it in the same lease and shard, unless that is settled in the
        same call: OutOfOrder."""

    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        """leased -> succeeded for a whole receive at once; False, with nothing changed, when part of it is no longer
        leased. The positions are all of the receive, each once."""

    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        """leased -> leased, until at least `seconds` from now, for each (token, position), as far as its times allow; a
        lease never becomes shorter. The new end, or None when lost; all are lost when the queue was deleted."""

    def position(self, queue: str, message_id: str) -> int:
        """The position of a message that has reached the log, for settling by id; NotFound otherwise."""

    def leases(
        self,
        queue: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        consumer: str | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[LeaseInfo]:
        """Messages in flight in the group, in log order: of given ids, of one consumer, or after a position. For
        callers that know a message by its id only."""

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        """Remove messages for good, as if past retention; returns how many there were. held, ready, leased -> cancelled
        in each group where they are live (counted, without a dead letter; leases are lost, addresses freed, batches go
        on without them); then message, audit and dead letters are deleted. The start of the log and of the audit does
        not move."""

    def trim(self, queue: str, *, upto: int | None = None, keep: int | None = None) -> int:
        """The same for the oldest messages of the log: all up to a position, or all but the newest `keep`; returns how
        many. The log starts after them, and dead letters stay, as when retention ends."""

    def find(self, queue: str, message_id: str) -> Message:
        """One message by its id, whatever its state; NotFound when there never was one or it is past retention."""

    # -- groups -------------------------------------------------------------------------------------------------------

    def seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> int:
        """Move the group's cursor to a position, a time, "start" or "end": messages before it are skipped, messages
        after it are ready again unless they are leased or waiting for a retry. Returns the position."""

    def groups(self, queue: str) -> list[str]:
        """The groups of the queue by name."""

    def forget(self, queue: str, group: str) -> bool:
        """Remove a group and all its state, as if it had never read; returns whether it existed. The primary group
        cannot be removed (InvalidInput)."""

    def stats(self, queue: str) -> dict[str, GroupStats]:
        """Every group's counts, in one snapshot and without reading messages."""

    # -- addresses ----------------------------------------------------------------------------------------------------

    def address(self, queue: str, address: str) -> AddressState | None:
        """The newest message of the address and its outcome, if it has ended; None for an address never used."""

    def is_live(self, queue: str, address: str) -> bool:
        """Whether a message of the address has not ended, so that a send to it is refused. False for one that has
        expired, even if no sweep has recorded it yet."""

    def ended(self, queue: str, message_id: str) -> AddressState | None:
        """How a message ended in the primary group; None while it is live, NotFound when it is past retention."""

    # -- consumers ----------------------------------------------------------------------------------------------------

    def register(
        self,
        queue: str,
        group: str,
        name: str,
        heartbeat_seconds: float,
        max_missed_heartbeats: int = 1,
        heartbeats_per_sweep: int = 10,
    ) -> ConsumerInfo:
        """Add a consumer at the end of the birth order; one that is there already keeps its place."""

    def heartbeat(self, queue: str, group: str, name: str) -> ConsumerInfo:
        """Keep the consumer alive; every `heartbeats_per_sweep` times also remove the consumers of its group that
        missed too many heartbeats. ConsumerRemoved when it was removed itself."""

    def deregister(self, queue: str, group: str, name: str) -> int:
        """Remove the consumer and end its leases at once; returns the number of messages released."""

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        """Registered consumers in birth order."""

    # -- dead letters -------------------------------------------------------------------------------------------------

    def dead_letters(
        self, queue: str, group: str | None, outcome: State | None, limit: int, before: Edge | None
    ) -> list[DeadLetter]:
        """Dead letters, newest first; `before` is the edge of the last one seen, for paging."""

    def redrive(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        """dead -> ready in that group, with attempts reset and times moved to now; returns how many."""

    def purge(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        """Delete dead letters; returns how many."""

    # -- maintenance --------------------------------------------------------------------------------------------------

    def sweep(self) -> SweepReport:
        """One pass over all queues: reclaim, promote, expire, fire schedules, remove dead consumers, trim."""

    def claim_sweep(self, every_seconds: float) -> bool:
        """Claim the next maintenance pass if nobody has claimed one for that long; returns whether it was claimed. Many
        processes ask, one sweeps."""
