"""Faults in the functions of PostgreSQL."""

from __future__ import annotations

from scripts.mutants.rule import Rule

POWER = ("tests/chaos/test_power_cuts.py", "-k", "postgres or lazy")
LAWS = ("tests/laws/test_laws.py", "-k", "postgres")


def _conformance(*files: str) -> tuple[str, ...]:
    return (*(f"tests/conformance/test_{name}.py" for name in files), "-k", "postgres and not async")


def _own(*files: str) -> tuple[str, ...]:
    return tuple(f"tests/engines/postgres/test_{name}.py" for name in files)


RULES = (
    Rule(
        "PostgreSQL: an at_most_once receive answers before it is on the disk",
        "if not _durable and r.delivery = 'at_least_once' then",
        "if not _durable then",
        POWER,
    ),
    Rule(
        "PostgreSQL: a stale token settles a retry",
        "and state is not distinct from 'leased' and token = _token",
        "and state is not distinct from 'leased'",
        _conformance("stale_tokens"),
    ),
    Rule(
        "PostgreSQL: a stale token settles a first attempt",
        "where group_id = _group_id and token = _token and positions @> <a> for update; if not found then",
        "where group_id = _group_id and positions @> <a>\n    for update;\n    if not found then",
        _conformance("stale_tokens"),
    ),
    Rule(
        "PostgreSQL: an ended lease still settles",
        "select _ends_at > _now or",
        "select true or",
        _conformance("ended_leases"),
    ),
    Rule(
        "PostgreSQL: two receives move one cursor",
        "select pg_try_advisory_xact_lock(_key) and penstock._is_not_overtaken(_key)",
        "select true",
        (*_own("overlaps", "open_receive"),),
    ),
    Rule(
        "PostgreSQL: an at_most_once message comes back when its lease ends",
        "elsif _at_most_once then state := 'lease_expired';",
        "elsif false then\n                state := 'lease_expired';",
        LAWS,
    ),
    Rule(
        "PostgreSQL: one retry too few",
        "q.max_retries is null or <a>.attempt <= q.max_retries;",
        "q.max_retries is null or <a>.attempt < q.max_retries;",
        _conformance("retry"),
    ),
    Rule(
        "PostgreSQL: a nak does not wait for the backoff",
        "coalesce(_delay, penstock.<a>(q, <b>.attempt))",
        "coalesce(_delay, 0)",
        _conformance("retry"),
    ),
    Rule(
        "PostgreSQL: a reschedule keeps the attempts",
        "(greatest(0, coalesce(_delay, 0))); attempt := 0;",
        "(greatest(0, coalesce(_delay, 0)));",
        _conformance("settle", "retry"),
    ),
    Rule(
        "PostgreSQL: a tick is sent by everybody who sweeps",
        "where name = _name and next_at = _expected_at and not paused",
        "where name = _name and not paused",
        ("tests/faults/test_races.py", "-k", "postgres and tick"),
    ),
    Rule(
        "PostgreSQL: readers of streams pass open transactions by",
        "return least(_last, ( select min(",
        "return greatest(_last, (\n        select min(",
        ("tests/servers/clients/test_stream_readers.py",),
    ),
    Rule(
        "PostgreSQL: retention passes open transactions by",
        "select max(<a>) filter (where tx <= pg_snapshot_xmin(pg_current_snapshot())),",
        "select max(<a>),",
        _own("retention"),
    ),
    Rule(
        "PostgreSQL: a cursor passes open transactions by",
        "select 1 from pg_snapshot_xip(c.snap) as o (x)",
        "select 1 from pg_snapshot_xip(c.snap) as o (x) where false and",
        ("tests/laws/test_law_8_commit_order.py",),
    ),
    Rule(
        "PostgreSQL: retention and streams count open transactions as decided",
        "insert into penstock.<a> (<b>, tx) values (<c>, pg_current_xact_id());",
        "insert into penstock.<a> (<b>, tx) values (<c>, pg_snapshot_xmin(pg_current_snapshot()));",
        ("tests/laws/test_law_8_commit_order.py", *_own("retention")),
    ),
    Rule(
        "PostgreSQL: a send with a known id is another message",
        "if penstock.<a>(q, m.id, <b>[m.place], null) is not true then",
        "if penstock.<a>(q, m.id, <b>[m.place], null) is null then",
        _conformance("same_id"),
    ),
    Rule(
        "PostgreSQL: a send into a batch does not hold it open",
        "select * into b from penstock.batch where batch_id = b.batch_id for share;",
        "select * into b from penstock.batch where batch_id = b.batch_id;",
        _own("open_batches"),
    ),
    Rule(
        "PostgreSQL: a message whose lease ended is ready although no retries are left",
        "and (q.max_retries is null or _attempt <= q.max_retries)",
        "and true",
        _conformance("lease_end", "retry"),
    ),
    Rule(
        "PostgreSQL: an ordered queue does not give back what lies behind a retry",
        "if q.ordered and q.delivery <> 'at_most_once' and _event <> 'release' then",
        "if false then",
        _conformance("ordered"),
    ),
    Rule(
        "PostgreSQL: an ended lease is extended",
        "where group_id = _group_id and token = _token and ends_at - _now > 0 and positions <@ _asked",
        "where group_id = _group_id and token = _token and positions <@ _asked",
        _conformance("ended_leases"),
    ),
    Rule(
        "PostgreSQL: the message of a schedule does not say its tick",
        "'penstock-schedule', s.name, 'penstock-tick',",
        "'penstock-schedule', s.name, 'penstock-tock',",
        _conformance("ticks"),
    ),
    Rule(
        "PostgreSQL: delayed messages are ready at once",
        "if b.state = 'open' or _available_at > _now then",
        "if b.state = 'open' then",
        _conformance("delay"),
    ),
    Rule(
        "PostgreSQL: messages do not expire",
        "_message.expires_at := _now + penstock.<a>(coalesce(m.ttl_seconds, q.ttl_seconds));",
        "_message.expires_at := null;",
        _conformance("expiry"),
    ),
    Rule(
        "PostgreSQL: retries of an ordered queue come by position",
        "order by t.priority, t.position limit 1; if turn.kind = 'retry' then",
        "order by t.position limit 1;\n        if turn.kind = 'retry' then",
        _conformance("ordered_priorities"),
    ),
    Rule(
        "PostgreSQL: a nak releases by position",
        "where (one.priority, one.position) > (blocking.priority, blocking.position)",
        "where one.position > blocking.position",
        _conformance("ordered_priorities"),
    ),
    Rule(
        "PostgreSQL: of a lapsed lease the earliest position has failed",
        "order by one.token, one.shard, one.priority, one.position",
        "order by one.token, one.shard, one.position",
        _conformance("ordered_priorities"),
    ),
)
