"""Faults in the functions of the Redis engine."""

from __future__ import annotations

from scripts.mutants.rule import Rule

PLACE = "redis"


def _conformance(*files: str) -> tuple[str, ...]:
    return (*(f"tests/conformance/test_{name}.py" for name in files), "-k", "redis and not async")


def _sharded(names: str) -> tuple[str, ...]:
    return ("tests/engines/redis/test_sharded_queues.py", "-k", names)


TOKENS = _conformance("stale_tokens", "ended_leases")

RULES = (
    Rule(
        "Redis: a stale token settles a first attempt",
        "flight = lease.token == token and leases.flight_in(queue, lease, position)",
        "flight = leases.flight_in(queue, lease, position)",
        TOKENS,
        PLACE,
    ),
    Rule(
        "Redis: a stale token settles a retry",
        'row.state == "leased" and row.token == token and leases.tracked_flight',
        'row.state == "leased" and leases.tracked_flight',
        TOKENS,
        PLACE,
    ),
    Rule(
        "Redis: a stale token acks a range",
        "if not lease or lease.token ~= first[3] or lease.ends_at <= queue.now then",
        "if not lease or lease.ends_at <= queue.now then",
        TOKENS,
        PLACE,
    ),
    Rule(
        "Redis: an ended lease acks a range",
        "or lease.token ~= first[3] or lease.ends_at <= queue.now then",
        "or lease.token ~= first[3] then",
        TOKENS,
        PLACE,
    ),
    Rule(
        "Redis: an ended lease still settles",
        "if ends_at > now then return true end",
        "if ends_at > 0 then\n        return true\n    end",
        TOKENS,
        PLACE,
    ),
    Rule(
        "Redis: leases do not lapse",
        'call("ZRANGEBYSCORE", group.lease_ends, "-inf", whole(now), ',
        'call("ZRANGEBYSCORE", group.lease_ends, "-inf", 0, ',
        _conformance("lease_end"),
        PLACE,
    ),
    Rule(
        "Redis: one retry too few",
        "return policy.max_retries == nil or attempt <= policy.max_retries",
        "return policy.max_retries == nil or attempt < policy.max_retries",
        _conformance("retry"),
        PLACE,
    ),
    Rule(
        "Redis: a retry does not count as an attempt",
        "row.attempt = row.attempt + 1 row.state, row.token",
        "row.state, row.token",
        _conformance("lease_end"),
        PLACE,
    ),
    Rule(
        "Redis: unread messages do not expire",
        'if message.x and message.x <= queue.now then return "expire"',
        'if false then\n        return "expire"',
        _conformance("expiry"),
        PLACE,
    ),
    Rule(
        "Redis: held messages are early",
        'call("ZADD", queue.key .. ":hd", whole(message.v), padded(number))',
        'call("ZADD", queue.key .. ":hd", 0, padded(number))',
        _conformance("delay"),
        PLACE,
    ),
    Rule(
        "Redis: a reschedule keeps the attempts",
        "return live_again(event, leased, now, delay, 0, moved)",
        "return live_again(event, leased, now, delay, leased.attempt, moved)",
        _conformance("settle"),
        PLACE,
    ),
    Rule(
        "Redis: a consumer that missed its heartbeats keeps its leases",
        'leave(queue, group, row.name) call("HSET", group.removed_consumers',
        'call("HSET", group.removed_consumers',
        _conformance("consumers"),
        PLACE,
    ),
    Rule(
        "Redis: a batch ends before its last member",
        'if batch.state == "open" or ENDED[batch.state] or batches.remaining(queue, batch.number) > 0 then',
        'if batch.state == "open" or ENDED[batch.state] then',
        _conformance("batch"),
        PLACE,
    ),
    Rule(
        "Redis: a tick of an overtaken sweep is sent again",
        "if ticks.since < since or ticks.since == since and tick <= last then",
        "if false then",
        ("tests/engines/redis/test_overtaken_sweeps.py",),
        PLACE,
    ),
    Rule(
        "Redis: what lies behind a retry of an ordered queue is not released",
        'if queues.keeps_order(queue) and event ~= "release" then',
        "if false then",
        _conformance("ordered"),
        PLACE,
    ),
    Rule(
        "Redis: retries of an ordered queue come by position",
        "sort_by(found, 1, 2) for _, one in ipairs(found) do waiting",
        "sort_by(found, 2)\n    for _, one in ipairs(found) do\n        waiting",
        _conformance("ordered_priorities"),
        PLACE,
    ),
    Rule(
        "Redis: a nak releases by position",
        "if priority > blocking.priority or priority == blocking.priority and position > blocking.position then",
        "if position > blocking.position then",
        _conformance("ordered_priorities"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a caller that knows other shards is answered",
        'if queue.key == called_key and queue.slots ~= slots_given then refuse("SLOTS")',
        'if false then refuse("SLOTS")',
        _sharded("finds_out or fixed"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a shard is not told how its caller sees the order",
        "if queue.slots > 0 and (given.ordered or false) ~= queue.policy.ordered then",
        "if false then",
        _sharded("order_is_asked_for"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a receive creates a group in one shard",
        "if queue.slots > 0 and not groups.find(queue, name) then",
        "if false then",
        _sharded("group_that_was_removed"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a receive goes on under a token that a shard has given out",
        "return not token_given or given.again or token_given > queue.token",
        "return true",
        _sharded("older_token"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a shard does not tell that it has other priorities",
        'call("HSET", queue.key, "mixed", 1)',
        'call("HGET", queue.key, "mixed")',
        _sharded("better_priority_in"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a retry in another shard is not asked for",
        "for _, one in ipairs(tracked.ready(group, STEPS)) do add(one[2])",
        "for _, one in ipairs({}) do add(one[2])",
        _sharded("better_priority_in"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: positions are given out behind a reader",
        'queue.last = given.last call("HSET", key, "last", whole(given.last))',
        "queue.last = given.last",
        _sharded("behind_a_reader"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a deletion takes the shards of a later queue",
        "if not found[1] or tonumber(found[2] or 0) > given.generation then return 0",
        "if not found[1] then return 0",
        _sharded("declared_meanwhile"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a queue takes over the shards that a crash has left",
        "elseif generation == given.generation then return 0",
        "elseif generation > 0 then return 0",
        _sharded("crash_has_left"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a queue that is in use is spread",
        'return queue.slots == 0 and removal.count(queue) == 0 and call("EXISTS", queue.key .. ":gs", queue.key .. '
        '":b", queue.key .. ":sg", queue.key .. ":jn") == 0',
        "return queue.slots == 0",
        _sharded("in_use"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a late copy of the policy wins",
        'tonumber(call("HGET", key, "revision") or 0) < given.revision then',
        "true then",
        _sharded("late_copy"),
        PLACE,
    ),
    Rule(
        "Redis Cluster: a message is refused after others were sent",
        "messages.check(queue, messages.drafts(given, args, 3), given.is_checked, {}) return 1",
        "return 1",
        _sharded("refused_message_stops"),
        PLACE,
    ),
)
