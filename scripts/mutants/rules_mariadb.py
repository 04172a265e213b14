"""Faults in statements that the engines over positions share, which the tests on MariaDB must catch as well."""

from __future__ import annotations

from scripts.mutants.rule import Rule

PLACE = "positional"


def _conformance(*files: str) -> tuple[str, ...]:
    return (*(f"tests/conformance/test_{name}.py" for name in files), "-k", "mariadb and not async")


RULES = (
    Rule(
        "MariaDB: leases do not lapse",
        "where group_id = :group_id and (ends_at <= :now or consumer = :consumer) order by last_position;",
        "where group_id = :group_id and (consumer = :consumer)\norder by last_position;",
        _conformance("lease_end"),
        PLACE,
    ),
    Rule(
        "MariaDB: leases of retries do not lapse",
        "and state = 'leased' and (until_at <= :now or consumer = :consumer) order by position;",
        "and state = 'leased' and consumer = :consumer\norder by position;",
        _conformance("lease_end"),
        PLACE,
    ),
    Rule(
        "MariaDB: held messages are early",
        "where queue_id = :queue_id and waiting = 0 and available_at <= :now order by available_at, held_id",
        "where queue_id = :queue_id and waiting = 0\norder by available_at, held_id",
        _conformance("delay"),
        PLACE,
    ),
    Rule(
        "MariaDB: retries are early",
        "where group_id = :group_id and state = 'held' and until_at <= :now order by until_at, position",
        "where group_id = :group_id and state = 'held'\norder by until_at, position",
        _conformance("ended_leases"),
        PLACE,
    ),
    Rule(
        "MariaDB: retries do not expire",
        "where group_id = :group_id and state <> 'leased' and expires_at <= :now",
        "where group_id = :group_id and state <> 'leased' and 1 = 0",
        _conformance("expiry"),
        PLACE,
    ),
    Rule(
        "MariaDB: a retry does not count as an attempt",
        "set state = 'leased', attempt = attempt + 1, until_at = :ends_at, token = :token, consumer = :consumer",
        "set state = 'leased', attempt = attempt, until_at = :ends_at, token = :token, consumer = :consumer",
        _conformance("lease_end"),
        PLACE,
    ),
    Rule(
        "MariaDB: worse priorities first",
        "where lane.queue_id = ?1 and lane.priority >= 0 order by lane.priority, lane.shard;",
        "where lane.queue_id = ?1 and lane.priority >= 0\norder by lane.priority desc, lane.shard;",
        _conformance("order"),
        PLACE,
    ),
    Rule(
        "MariaDB: a batch ends while members are held",
        "or exists (select 1 from penstock_held where batch_id = :batch_id);",
        "or false;",
        _conformance("batch"),
        PLACE,
    ),
    Rule(
        "MariaDB: a batch ends before its last member",
        "select exists (select 1 from penstock_member where batch_id = :batch_id) or exists",
        "select exists",
        _conformance("batch"),
        PLACE,
    ),
    Rule(
        "MariaDB: a tick is sent again",
        "set next_at = :next_at, last_at = coalesce(:last_at, last_at) where name = :name;",
        "set last_at = coalesce(:last_at, last_at) where name = :name;",
        _conformance("schedules"),
        PLACE,
    ),
    Rule(
        "MariaDB: a seek leaves addresses and batches behind",
        "and (log.address is not null or log.batch_id is not null)",
        "and log.batch_id is not null",
        _conformance("seek"),
        PLACE,
    ),
    Rule(
        "MariaDB: retries of an ordered queue come by position",
        "order by tracked.priority, tracked.position;",
        "order by tracked.position;",
        _conformance("ordered_priorities"),
        PLACE,
    ),
)
