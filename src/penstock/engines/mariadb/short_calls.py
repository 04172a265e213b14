"""Calls in one packet: the usual send, receive and ack, without a round trip while the queue is locked.

The client knows the policy of the queue from an earlier call. The packet is a compound statement of MariaDB that locks
the queue, checks that the policy is still the same and that nothing is due, writes and commits. Otherwise it changes
nothing, and the call is made statement by statement, as on MySQL and on a cluster (docs/decisions/0336). Inside the
transaction of `together` the statement begins and commits nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from penstock.domain.identity import made_ids
from penstock.domain.message import PLAIN, Draft
from penstock.domain.policy import Policy
from penstock.domain.settlement import Settle
from penstock.domain.timestamps import microseconds
from penstock.engines.contract import Receipt
from penstock.engines.mariadb.connection import MariadbDatabase
from penstock.engines.mariadb.literals import Fragment, PreparedBlock, Template, literal
from penstock.engines.mariadb.transaction import SQL
from penstock.engines.positional.audit import MAX_SPAN
from penstock.engines.positional.database import ResultRow
from penstock.engines.positional.deliveries import TOUCH_EVERY
from penstock.engines.positional.messages import is_plainly_sent
from penstock.engines.positional.ranges import contiguous_ranges


class ShortCall(NamedTuple):
    """A statement that is a transaction, and the same as a part of another one."""

    whole: Template | PreparedBlock
    part: Template | PreparedBlock


def _as_part(text: str) -> str:
    text = text.replace(f"{SQL.begin_write};", f"{SQL.begin_part};").replace(f"{SQL.undo};", f"{SQL.undo_part};")
    return text.replace(f"{SQL.end_write};", "")


_SEND = ShortCall(Template(SQL.send_at_once), Template(_as_part(SQL.send_at_once)))
_RECEIVE = ShortCall(
    PreparedBlock("penstock_receive", SQL.receive_at_once, f";\n{SQL.end_write}"),
    PreparedBlock("penstock_receive_part", _as_part(SQL.receive_at_once)),
)
_ACK = ShortCall(
    PreparedBlock("penstock_ack", SQL.ack_at_once), PreparedBlock("penstock_ack_part", _as_part(SQL.ack_at_once))
)
# Ranges of one ack, each of which takes the server some statements.
MOST_RANGES = 1000
# Queues and groups that a process remembers.
MOST_KNOWN = 1024
# So many calls after one that was not possible are not tried.
PAUSE = 16
_decode_policy = msgspec.json.Decoder(Policy).decode


class KnownReader(NamedTuple):
    """A queue and one of its groups, as they were when they were last looked up."""

    queue_id: int
    revision: int
    policy: Policy
    lane_id: int | None
    group_id: int
    group: str


class ShortCalls:
    def __init__(self, database: MariadbDatabase) -> None:
        self._database = database
        self._known: dict[tuple[str, str | None], KnownReader] = {}
        self._pauses: dict[tuple[str, str], int] = {}

    def send(self, queue: str, drafts: Sequence[Draft]) -> list[str] | None:
        """The ids; None when the call has to be made the other way."""
        reader = self._reader("send", queue, None)
        if reader is None or reader.lane_id is None or not _is_plain(reader.policy, drafts):
            return None
        rows = _rows(reader.lane_id, drafts)
        bindings = {"queue": queue, "count": len(drafts), "lane_id": reader.lane_id, "rows": rows}
        answers = self._run(_SEND, reader, bindings)
        if not answers:
            self._pause("send", queue, answers)
            return None
        self._changed()
        [(first, now)] = answers[0]
        return made_ids(now, self._database.salt, first, first + len(drafts) - 1)

    def receive(
        self, queue: str, group: str | None, consumer: str, limit: int, lease_seconds: float | None
    ) -> Receipt | None:
        reader = self._reader("receive", queue, group)
        if reader is None or limit > MAX_SPAN or not _is_read_plainly(reader.policy):
            return None
        database = self._database
        lease = reader.policy.lease_seconds if lease_seconds is None else lease_seconds
        bindings = {
            "queue": queue, "limit": limit, "consumer": consumer, "lease": microseconds(lease),
            "least_token": database.tokens.latest + 1, "touch_every": TOUCH_EVERY,
        }  # fmt: skip
        answers = self._run(_RECEIVE, reader, bindings, awaits_commit=reader.policy.at_most_once)
        *rows, [(is_complete, token)] = answers or [[(0, 0)]]
        if not is_complete:
            self._pause("receive", queue, answers)
            return None
        database.tokens.seen(token)
        if rows:
            self._changed()
        return Receipt(token, queue, reader.group, consumer, database.salt, rows[0] if rows else [])

    def ack(self, queue: str, group: str, ranges: Sequence[tuple[int, int, int]]) -> bool:
        """Ack ranges of first attempts, each (token, first, last); whether all were leased and are acked now."""
        reader = self._reader("ack", queue, group)
        widths = [last - first + 1 for _, first, last in ranges]
        if reader is None or len(ranges) > MOST_RANGES or max(widths) > MAX_SPAN or reader.policy.keeps_order:
            return False
        encoded = ",".join([f"[{token},{first},{last}]" for token, first, last in ranges])
        bindings = {"ranges": f"[{encoded}]", "count": len(ranges), "messages": sum(widths)}
        # An ack may be repeated, so a connection that ends is no error here.
        answers = self._run(_ACK, reader, bindings, can_repeat=True)
        if not answers:
            self._pause("ack", queue, answers)
            return False
        self._changed()
        return True

    def _reader(self, verb: str, queue: str, group: str | None) -> KnownReader | None:
        """The queue and the group, where a call in one packet can be tried."""
        database = self._database
        if database.is_cluster:
            return None
        left = self._pauses.get((verb, queue), 0)
        if left:
            self._pauses[verb, queue] = left - 1
            return None
        known = self._known.get((queue, group))
        if known is None:
            with database.read(checks=False) as transaction:
                row = transaction.row("known_reader", {"queue": queue, "group": group})
            if row is None:
                return None
            queue_id, revision, policy, lane_id, group_id, name = row
            known = KnownReader(queue_id, revision, _decode_policy(policy), lane_id, group_id, name)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[queue, group] = known
        return known

    def _run(
        self,
        call: ShortCall,
        reader: KnownReader,
        bindings: dict[str, Any],
        can_repeat: bool = False,
        awaits_commit: bool = True,
    ) -> list[list[ResultRow]] | None:
        """The result sets of a packet; None when it was not sent, or may be repeated."""
        database = self._database
        common = {"queue_id": reader.queue_id, "revision": reader.revision, "group_id": reader.group_id}
        values = {**common, **bindings, "now": database.given_time()}
        transaction = database.current()
        if transaction is not None:
            return transaction.run_block(call.part, values)
        return database.run_block(call.whole, values, can_repeat, awaits_commit)

    def _changed(self) -> None:
        transaction = self._database.current()
        if transaction is None:
            self._database.on_commit()
        else:
            transaction.has_changed = True

    def _pause(self, verb: str, queue: str, answers: list[list[ResultRow]] | None) -> None:
        """After an answer which says that nothing was done: look the queue up again, later."""
        if answers is None:
            return
        # A copy first: other threads add queues meanwhile.
        for known in [key for key in list(self._known) if key[0] == queue]:
            with suppress(KeyError):
                del self._known[known]
        if len(self._pauses) >= MOST_KNOWN:
            self._pauses.clear()
        self._pauses[verb, queue] = PAUSE


def ranges_of(acks: Sequence[Settle]) -> list[tuple[int, int, int]]:
    """What plain acks settle, as ranges."""
    wanted: dict[int, set[int]] = {}
    for one in acks:
        wanted.setdefault(one.token, set()).add(one.position)
    return [(token, *part) for token, positions in wanted.items() for part in contiguous_ranges(sorted(positions))]


def _is_plain(policy: Policy, drafts: Sequence[Draft]) -> bool:
    """Whether the messages are rows of the first lane and nothing else. One that is too large is refused the other way,
    because the limit may be another one by now."""
    return (
        is_plainly_sent(policy)
        and policy.shards == 1
        and max([len(payload) for payload, _, _ in drafts]) <= policy.max_payload_bytes
        and all([options is PLAIN or options == PLAIN for _, _, options in drafts])
    )


def _is_read_plainly(policy: Policy) -> bool:
    return policy.shards == 1 and not policy.ordered and not policy.paused


def _rows(lane_id: int, drafts: Sequence[Draft]) -> Fragment:
    place = f"{lane_id}, @penstock_time"
    rows = [
        f"(@penstock_last_position + {number}, {place}, {literal(content_type)}, x'{payload.hex()}')"
        for number, (payload, content_type, _) in enumerate(drafts, 1)
    ]
    return Fragment(", ".join(rows))
