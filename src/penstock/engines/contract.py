"""The engine contract: every verb of the model, one sentence each, naming the transition it makes.

An engine is blocking and may be used from several threads. Every verb is one transaction: it happens wholly or not
at all, and is durable when it returns (a receive may be lost by a power cut where that only means a redelivery; an
`at_most_once` receive may not). Values arrive checked (`domain`): an engine looks only at what its own state says.
Time is the engine's own clock, never the caller's. Engines raise the errors of `domain.errors` and no others.

What an engine cannot do is a flag of `Capabilities`, which the test run prints; it is never a silent fallback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from penstock.domain.identity import made_id
from penstock.domain.lifecycle import State
from penstock.domain.message import Draft, Message
from penstock.domain.observations import (
    AddressState,
    Archived,
    AuditEntry,
    BatchInfo,
    Check,
    ConsumerInfo,
    DeadLetter,
    Explanation,
    GroupStats,
    LeaseInfo,
    MessageState,
    Part,
    QueueInfo,
    Repair,
    SweepReport,
)
from penstock.domain.policy import Policy
from penstock.domain.recurrence import CatchUp, Schedule
from penstock.domain.settlement import Settle, Settled
from penstock.engines.flaws import Choices

if TYPE_CHECKING:
    import pyarrow

# A row of a receipt, kept as a plain tuple because a receive of thousands must not build thousands of objects:
# (position, created_at, id or None, content_type, headers, expires_at, deadline_at, address, key, batch,
#  created_by, payload, priority, attempt, lease_ends_at)
# The id is None when it is the one Penstock makes (`identity.made_id`). Times are microseconds.
Row = tuple[Any, ...]
POSITION, CREATED_AT, ID, CONTENT_TYPE, HEADERS, EXPIRES_AT, DEADLINE_AT, ADDRESS, KEY, BATCH, CREATED_BY, PAYLOAD = (
    range(12)
)
PRIORITY, ATTEMPT, LEASE_ENDS_AT = range(12, 15)


class Receipt(msgspec.Struct, frozen=True, eq=False):
    """What one receive handed out: one token for all its rows. `is_cut` is set where less was received than asked for,
    although there may be more."""

    token: int
    queue: str
    group: str
    consumer: str
    salt: int
    rows: list[Row]
    is_cut: bool = False

    def id_of(self, row: Row) -> str:
        return row[ID] or made_id(row[CREATED_AT], self.salt, row[POSITION])


class Capabilities(msgspec.Struct, frozen=True):
    """What this engine can do beyond the verbs."""

    transactional_send: bool
    crosses_processes: bool
    makes_own_schema: bool
    receives_lightly: bool = True
    """A receive that finds nothing disturbs nobody, so that there is no need to look before."""


Operation = Callable[[], Any]
# A place between two rows of a table, for reading by window. Only the engine that made it knows what it means (SQLite:
# a position; PostgreSQL: snapshots, because its sequences commit out of order); it goes through JSON unchanged. It
# names the last row before it, by which a store that was restored since can tell that the mark is not one of its log.
Mark = int | str
# What can be read by window: the log; the audit, one row per message and entry; the messages that have ended, one row
# per message and group, in the order of ending (the marks of `audit` and `archive` are the same); dead letters as they
# are now, whatever the marks.
Table = Literal["messages", "audit", "archive", "dead_letters"]
# The place of a dead letter among others: when it died, its position, its group.
Edge = tuple[int, int, str]


class Engine(Protocol):
    """One database that holds queues."""

    name: str
    capabilities: Capabilities

    # -- the store -------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Bring the schema to this version, and name the steps taken; a newer schema is refused."""

    def close(self) -> None:
        """Give back every resource; what others do in the same database goes on."""

    def now(self) -> int:
        """The engine's clock, in microseconds."""

    def together(self, operations: Sequence[Operation]) -> list[Any]:
        """Run calls of this engine in one transaction, each whole or not at all: a result or an exception for each."""

    def wait(self, seen: int, timeout_seconds: float) -> int:
        """Sleep until something was committed after `seen` (from here or another process), or the timeout."""

    def seen(self) -> int:
        """A mark of what was committed up to now, for `wait`."""

    def doctor(self) -> list[Check]:
        """Look at version, durability, integrity, flaws and stuck things, and say what to do about each."""

    def repair(self, dry_run: bool, choices: Choices) -> list[Repair]:
        """Mend the flaws that earlier versions or faults left behind, as far as that needs no decision or it was made;
        a dry run changes nothing."""

    # -- queues ----------------------------------------------------------------------------------------------------

    def declare(self, queue: str, changes: dict[str, Any]) -> Policy:
        """Make the queue if it is new, set the given policy fields, and give back the whole policy."""

    def policy(self, queue: str) -> Policy:
        """The policy in force; the default one for a queue that does not exist yet."""

    def has(self, queue: str) -> bool:
        """Whether there is such a queue, at a cost that does not depend on how many there are."""

    def queues(self) -> list[QueueInfo]:
        """All queues by name."""

    def flush(self, queue: str) -> int:
        """Remove every message, as if the queue had just been made; leases end, nothing comes back. Counts messages."""

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, queue: str, drafts: Sequence[Draft], transaction: object = None) -> list[str]:
        """(new) -> ready, or held when delayed or in a batch that has not started; the ids in the order given. An id
        that the queue already has is not sent again. With `transaction` it commits with the caller's own writes."""

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
        by its first receive, or with `needs_group` refused (NotFound) when it is not there."""

    def receive_each(
        self,
        queue: str,
        group: str | None,
        shares: Sequence[tuple[str, int]],
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> list[Receipt]:
        """Several receives at once, each (consumer, limit): as one after the other, but they may share a token."""

    def fitting(self, queue: str, group: str | None, limit: int, size: int) -> int:
        """How many of the messages that the group would receive next have at most `size` bytes of payload together: at
        most `limit`, and at least one. While others receive too it is an estimate."""

    def ready_in(self, queue: str, group: str | None) -> float | None:
        """Seconds until a receive could return something: 0 for now, None for not before something is committed."""

    def settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        """leased -> what `settlement.decide` says, each by its token; a stale token answers LeaseLost and changes
        nothing, the same settle again answers as before. In an ordered queue nothing ends before what was handed out
        before it in the same lease and shard, unless that is settled in the same call: OutOfOrder."""

    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        """leased -> succeeded for a whole receive at once; False (and nothing done) when it is not whole any more."""

    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        """leased -> leased, until at least `seconds` from now, for each (token, position), as far as its times allow; a
        lease never becomes shorter. The new end, or None when lost."""

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
        """What is in flight in the group now, in the order of the log: of given messages, of one consumer, or after a
        position. Lets somebody settle who knows a message by its id only."""

    def take_over(
        self,
        queue: str,
        group: str,
        consumer: str,
        ids: Sequence[str],
        lease_seconds: float,
        counts: bool = True,
        force: bool = False,
    ) -> Receipt:
        """leased -> leased by another consumer: the lease ends as if its time were up (or is released, when the
        attempt must not count) and the message is received anew. What is not in flight is left out; with `force` it is
        received too, out of its turn: unread, passed by, waiting for a retry, or ended (which it then has not)."""

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        """Take messages out of the queue for good, as if past retention; counts those that were there. held, ready,
        leased -> cancelled in each group where they are live (counted, without a dead letter; leases are lost,
        addresses free, batches go on without them); then message, trail and dead letters are gone. Where the log and
        the trail begin does not move."""

    def trim(self, queue: str, *, upto: int | None = None, keep: int | None = None) -> int:
        """The same for the oldest messages of the log: all up to a position, or all but the newest `keep`; counts
        them. The log begins after them, and dead letters stay, as when retention ends."""

    # -- groups ----------------------------------------------------------------------------------------------------

    def seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> int:
        """Move the group's cursor to a position, a time, "start" or "end": messages behind it are passed, those
        before it are ready again unless they are leased or waiting for a retry. Gives back the position."""

    def reached(self, queue: str, group: str) -> int:
        """The last position that the group has read or was moved past; 0 for one that is at the beginning."""

    def groups(self, queue: str) -> list[str]:
        """The groups of the queue by name."""

    def forget(self, queue: str, group: str) -> bool:
        """Remove a group and all it has done, as if it had never read; whether it was there. The primary group stays
        (InvalidInput)."""

    # -- addresses -------------------------------------------------------------------------------------------------

    def address(self, queue: str, address: str) -> AddressState | None:
        """The newest message of the address, and how it ended if it has; None for an address never used."""

    def ended(self, queue: str, message_id: str) -> AddressState | None:
        """How a message ended in the primary group; None while it is live, NotFound when it is past retention."""

    # -- batches ---------------------------------------------------------------------------------------------------

    # Batches have numbers that grow. A call means the newest batch of the name, or with `after` the first one of the
    # name after that number, whether it is there already or not.

    def batch_mark(self, queue: str, name: str, opens: bool) -> int:
        """The number before the batch that is meant by one who comes now: before the newest. One who `opens` means the
        next one when the newest has ended."""

    def batch_open(
        self, queue: str, name: str, end: Draft | None, abort: Draft | None, after: int | None = None
    ) -> BatchInfo:
        """Make the batch unless it is there, and set its end or abort message when given. The newest one is made anew
        when it has ended; with `after` that is BatchClosed."""

    def batch_start(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        """held -> ready for its members; an empty batch ends at once. Starting again changes nothing."""

    def batch_cancel(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        """held, ready -> cancelled for its members; the abort message follows when those in flight have ended."""

    def batch(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        """What can be seen of the batch; NotFound when there is none."""

    def batches(self, queue: str) -> list[BatchInfo]:
        """The batches of the queue, newest first."""

    # -- consumers -------------------------------------------------------------------------------------------------

    def register(self, queue: str, group: str, name: str, heartbeat_seconds: float) -> ConsumerInfo:
        """Add a consumer at the end of the birth order; one that is there already keeps its place."""

    def heartbeat(self, queue: str, group: str, name: str) -> ConsumerInfo:
        """Keep the consumer alive; ConsumerRemoved when a sweep has removed it."""

    def deregister(self, queue: str, group: str, name: str) -> int:
        """Remove the consumer and end its leases at once; counts the messages let go."""

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        """Registered consumers in birth order."""

    # -- schedules -------------------------------------------------------------------------------------------------

    def schedule(self, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp) -> Schedule:
        """Make or replace a schedule; its first tick is the next one from now, unless the rule stayed the same."""

    def schedules(self) -> list[Schedule]:
        """All schedules by name."""

    def schedule_pause(self, name: str, paused: bool) -> Schedule:
        """Stop or go on sending; ticks missed while paused are not sent. NotFound for an unknown name."""

    def unschedule(self, name: str) -> None:
        """Remove a schedule; what it sent stays. NotFound for an unknown name."""

    # -- dead letters ----------------------------------------------------------------------------------------------

    def dead_letters(
        self, queue: str, group: str | None, outcome: State | None, limit: int, before: Edge | None
    ) -> list[DeadLetter]:
        """Dead letters, newest first; `before` is the place of the last one seen, for paging."""

    def redrive(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        """dead -> ready in that group, attempts starting again, times moved to now; counts them."""

    def purge(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        """Remove dead letters for good; counts them."""

    # -- looking ---------------------------------------------------------------------------------------------------

    def peek(self, queue: str, group: str, limit: int) -> list[Message]:
        """What the group would receive next, in that order, without receiving it."""

    def find(self, queue: str, message_id: str) -> Message:
        """One message by its id, wherever it is; NotFound when it never was or is past retention."""

    def browse(self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False) -> list[Message]:
        """Messages of the log with after < position <= upto, whatever became of them, in order or backwards."""

    def places(
        self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
    ) -> list[tuple[int, int, int]]:
        """Of the same messages, without those that have expired: the position, the time sent and the bytes of each."""

    def settled(self, queue: str) -> int:
        """The position up to which nothing can appear in the queue any more. Whoever follows positions reads, after
        asking, not beyond it: where sends commit out of order, an open transaction may have an earlier one."""

    def position_at(self, queue: str, at: int) -> int:
        """The last position sent before a time, for browsing and seeking."""

    def last_position(self, queue: str) -> int:
        """The last position given out, whether its message is still there or not."""

    def stats(self, queue: str) -> dict[str, GroupStats]:
        """Every group's counts, in one snapshot and without reading messages."""

    def unread(self, queue: str) -> int:
        """How many messages a group could receive that has not begun yet."""

    def audit(self, queue: str, message_id: str) -> list[AuditEntry]:
        """The trail of one message over all groups, in order."""

    def states(self, queue: str, group: str, ids: Sequence[str]) -> list[MessageState | None]:
        """Where each message stands in the group, as the last entry of its trail says, in the order of the ids; None
        for one that never was or is past retention."""

    def archive(self, queue: str, group: str, outcome: State | None, limit: int, before: int | None) -> list[Archived]:
        """Messages that have ended in the group, latest position first; `before` is a position for paging."""

    def explain(self, queue: str, message_id: str, group: str) -> Explanation:
        """Where the message is, why it is not running, and what to do about it."""

    # -- maintenance -----------------------------------------------------------------------------------------------

    def sweep(self) -> SweepReport:
        """One pass over all queues: reclaim, promote, expire, fire schedules, remove dead consumers, trim."""

    def claim_sweep(self, every_seconds: float) -> bool:
        """Whether nobody has claimed a pass for that long; if so, it is claimed. Many processes ask, one sweeps."""

    # -- windows: how the pipeline reads -------------------------------------------------------------------------
    #
    # A table is read from mark to mark. What lies between two marks that are not beyond the horizon never changes.

    def epoch(self) -> str:
        """Names the log: the same for as long as marks mean the same, and never that of another store."""

    def horizon(self, queue: str, table: Table = "messages") -> Mark:
        """The mark up to which every committed row is readable: nothing can appear behind it later."""

    def earliest(self, queue: str, table: Table = "messages") -> Mark:
        """The mark from which the table is whole; what is before it may be past retention."""

    def mark_at(self, queue: str, at: int) -> Mark:
        """The mark behind the last message sent before a time."""

    def cut(
        self,
        queue: str,
        start: Mark,
        end: Mark,
        rows: int | None,
        size: int | None = None,
        table: Table = "messages",
    ) -> Mark:
        """The farthest mark, not beyond `end`, with at most `rows` rows and `size` payload bytes between it and
        `start`, but with at least one row if there is one. What happened to several messages at once is not cut apart,
        and has no size."""

    def window(self, queue: str, start: Mark, end: Mark, parts: int, table: Table = "messages") -> list[Part]:
        """The rows between two marks as at most `parts` pieces of like size; RangeTrimmed when some of them are past
        retention, LogDiverged when the store does not have the row before one of the marks and never trimmed it. The
        same window always holds the same rows but for those removed, and more than a few need not be counted for it."""

    def read(
        self, part: Part, batch_rows: int = 10_000, columns: Sequence[str] | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """The rows of a part as Arrow record batches with the columns of its table (`tables.schema`), or with the
        given ones; the same rows in the same order each time. RangeTrimmed when some were removed meanwhile."""

    def stream_position(self, queue: str, group: str) -> Mark | None:
        """Where a stream group stands; None when it has not begun."""

    def advance(self, queue: str, group: str, mark: Mark, table: Table = "messages") -> None:
        """Move a stream group's cursor forward, never back; a group that has leases, or streams another table, is
        refused, and a mark of another log (LogDiverged). Until its retention ends nothing is trimmed that an active
        stream group has not passed: messages, or with `audit` or `archive` those to which something happened beyond
        the mark."""

    # -- staging: how the sink sends ---------------------------------------------------------------------------------

    def stage(self, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
        """Put messages (`outgoing.schema`) aside under a key, as one part of several: nobody sees them. Counts them.
        Parts of tasks that ran twice have different names."""

    def release(self, queue: str, key: str, parts: Sequence[str]) -> int | None:
        """(new) -> ready or held for all that these parts have put aside, in that order, together with the entry
        `key/queue` of kind "sink" in the ledger. None, and nothing sent, when the ledger has that entry already. What
        else was put aside under the key is dropped, and what nobody released within a day."""

    def discard(self, queue: str, key: str) -> None:
        """Drop what was put aside under a key."""

    # -- the ledger: small facts that the pipeline keeps in the store --------------------------------------------------

    def ledger(self, kind: str, prefix: str = "") -> dict[str, str]:
        """The entries of a kind whose keys begin with a prefix, by key; values are JSON."""

    def record(
        self,
        kind: str,
        puts: Mapping[str, str],
        removes: Sequence[str] = (),
        expect: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Put and remove entries of a kind if every expected key has its expected value (None: is not there); False,
        and nothing changed, otherwise."""
