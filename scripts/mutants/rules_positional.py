"""Faults in the rules of the domain, in the queue over positions, and in SQLite."""

from __future__ import annotations

from scripts.mutants.rule import Rule

POWER = ("tests/chaos/test_power_cuts.py", "-k", "sqlite")
LAWS = ("tests/laws/test_laws.py", "-k", "sqlite")


def _conformance(*files: str) -> tuple[str, ...]:
    return (*(f"tests/conformance/test_{name}.py" for name in files), "-k", "sqlite and not async")


RULES = (
    Rule(
        "SQLite: a commit does not wait for the disk",
        "-- A commit is on the disk when it returns. pragma synchronous = full;",
        "-- A commit is on the disk when it returns.\npragma synchronous = normal;",
        POWER,
    ),
    Rule(
        "SQLite: writes answer before they are on the disk",
        "def write(self, queue: str | None = None, durable: bool = True, patient: bool = True) -> SqliteWrite:",
        "def write(self, queue: str | None = None, durable: bool = False, patient: bool = True) -> SqliteWrite:",
        POWER,
    ),
    Rule(
        "SQLite: an at_most_once receive answers before it is on the disk",
        "if durable or not stored.policy.at_most_once:",
        "if True:",
        POWER,
    ),
    Rule(
        "SQLite: the call that failed is committed",
        "elif error is None: database.run(SQL.commit)",
        "else:\n                    database.run(SQL.commit)",
        _conformance("undone_calls"),
    ),
    Rule(
        "a stale token settles a first attempt",
        "if lease.token != token: return None",
        "if False:\n        return None",
        _conformance("stale_tokens"),
    ),
    Rule(
        "a stale token acks a first attempt",
        "if lease is None or lease.token != token or lease.ends_at <= transaction.now:",
        "if lease is None or lease.ends_at <= transaction.now:",
        _conformance("stale_tokens"),
    ),
    Rule(
        "a stale token settles a retry",
        "if state != State.LEASED or holder != token:",
        "if state != State.LEASED:",
        _conformance("stale_tokens"),
    ),
    Rule(
        "an ended lease still acks",
        "or lease.token != token or lease.ends_at <= transaction.now:",
        "or lease.token != token:",
        _conformance("ended_leases", "stale_tokens"),
    ),
    Rule(
        "an ended lease still settles",
        "if ends_at > now: return True",
        "if ends_at > 0:\n        return True",
        (*_conformance("ended_leases", "stale_tokens"),),
    ),
    Rule(
        "an ended lease is acked as a whole",
        "if not leases or any(lease.ends_at <= now for lease in leases):",
        "if not leases:",
        _conformance("ack_many", "lease_end"),
    ),
    Rule(
        "leases do not lapse",
        "where group_id = :group_id and (ends_at <= :now or consumer = :consumer)",
        "where group_id = :group_id and (consumer = :consumer)",
        _conformance("lease_end"),
    ),
    Rule(
        "a retry does not count as an attempt",
        "set state = 'leased', attempt = attempt + 1, until_at = :ends_at, token = :token, consumer = :consumer",
        "set state = 'leased', attempt = attempt, until_at = :ends_at, token = :token, consumer = :consumer",
        _conformance("retry", "lease_end"),
    ),
    Rule(
        "one retry too few",
        "return policy.max_retries is None or attempt <= policy.max_retries",
        "return policy.max_retries is None or attempt < policy.max_retries",
        _conformance("retry"),
    ),
    Rule(
        "a nak does not wait for the backoff",
        "delay_seconds = backoff_seconds(policy, leased.attempt, random)",
        "delay_seconds = 0.0",
        _conformance("retry"),
    ),
    Rule(
        "a reschedule keeps the attempts",
        "(Event.RESCHEDULE, leased, now, delay_seconds, 0, moved)",
        "(Event.RESCHEDULE, leased, now, delay_seconds, leased.attempt, moved)",
        _conformance("settle", "retry"),
    ),
    Rule(
        "a reschedule does not move the expiry",
        "moved += microseconds(max(0, delay_seconds))",
        "moved += 0",
        _conformance("settle", "expiry"),
    ),
    Rule(
        "a release counts as an attempt",
        "(event, leased, now, 0, leased.attempt - 1)",
        "(event, leased, now, 0, leased.attempt)",
        _conformance("ordered"),
    ),
    Rule(
        "an at_most_once message comes back when its lease ends",
        "(Event.LEASE_END, State.LEASE_EXPIRED)",
        "(Event.LEASE_END, State.READY)",
        LAWS,
    ),
    Rule(
        "held messages are early",
        "where queue_id = :queue_id and waiting = 0 and available_at <= :now order by available_at, held_id",
        "where queue_id = :queue_id and waiting = 0\norder by available_at, held_id",
        _conformance("delay"),
    ),
    Rule(
        "retries are early",
        "where group_id = :group_id and state = 'held' and until_at <= :now order by until_at, position",
        "where group_id = :group_id and state = 'held'\norder by until_at, position",
        _conformance("ended_leases"),
    ),
    Rule(
        "retries do not expire",
        "where group_id = :group_id and state <> 'leased' and expires_at <= :now",
        "where group_id = :group_id and state <> 'leased' and 1 = 0",
        _conformance("expiry"),
    ),
    Rule(
        "a dead letter is not kept",
        "if letter and step.state is not State.SUCCEEDED:",
        "if letter and step.state is State.CANCELLED:",
        _conformance("dead_letters"),
    ),
    Rule(
        "a batch ends before its last member",
        'or transaction.value("any_remaining_member", {"batch_id": batch_id}):',
        "or False:",
        _conformance("batch"),
    ),
    Rule(
        "a batch ends again and again",
        'if batch.state in ("open", *ENDED) or transaction.value(',
        'if batch.state in ("open",) or transaction.value(',
        _conformance("batch", "batch_late", "batch_cancel"),
    ),
    Rule(
        "a tick is sent again",
        'transaction.run("advance_schedule", {"name": name, "next_at": following, "last_at": last_at})',
        'transaction.run("advance_schedule", {"name": name, "next_at": next_at, "last_at": last_at})',
        _conformance("schedules"),
    ),
    Rule(
        "worse priorities first",
        "where lane.queue_id = ?1 and lane.priority >= 0 order by lane.priority, lane.shard;",
        "where lane.queue_id = ?1 and lane.priority >= 0\norder by lane.priority desc, lane.shard;",
        _conformance("order"),
    ),
    Rule(
        "an ordered queue does not give back what lies behind a retry",
        "if queue.policy.keeps_order and event is not Event.RELEASE:",
        "if False:",
        _conformance("ordered"),
    ),
    Rule(
        "an ordered queue ends messages out of order",
        'return transaction.row("earlier_in_flight", bindings) is not None',
        "return False",
        _conformance("ordered"),
    ),
    Rule(
        "tokens are given out twice",
        "self.token = self.transaction.tokens.next(self.transaction.now)",
        "self.token = 1",
        _conformance("ended_leases", "stale_tokens"),
    ),
    Rule(
        "a caller's transaction is committed by the send",
        "own = caller_transaction.check_connection(connection, self.path, self.in_memory) with self.translated(),",
        "own = caller_transaction.check_connection(connection, self.path, self.in_memory)\n"
        "        own = apsw.Connection(self.path)\n        with self.translated(),",
        LAWS,
    ),
    Rule(
        "ordered: a new message overtakes a retry of a worse priority",
        "if unread is None or lane.priority > retries[0][0] or unread >= retries[0][1]:",
        "if unread is None or (lane.priority >= retries[0][0] and unread >= retries[0][1]):",
        _conformance("ordered_priorities"),
    ),
    Rule(
        "ordered: new messages join a retry though a better priority was passed over",
        "elif shard in passed:",
        "elif False:",
        _conformance("ordered_priorities"),
    ),
    Rule(
        "ordered: of a lapsed lease the earliest position has failed",
        "for flight in sorted(lapsed, key=lambda one: (one.priority, one.position)): heads.setdefault",
        "for flight in sorted(lapsed):\n        heads.setdefault",
        _conformance("ordered_priorities"),
    ),
    Rule(
        "ordered: a nak releases by position",
        "start = max(first, blocking.position + 1) if priority == blocking.priority else first",
        "start = max(first, blocking.position + 1)",
        _conformance("ordered_priorities"),
    ),
)
