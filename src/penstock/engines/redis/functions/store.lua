-- The store: small facts in a slot of their own: ledger, schedules, the claim of the next sweep.

-- Compare-and-set of entries of a hash: puts, removes, and what is expected (false: absent).
function store.record(key, _, given)
    for name, value in pairs(given.expect or {}) do
        if call("HGET", key, name) ~= value then
            return 0
        end
    end
    for _, name in ipairs(given.removes or {}) do
        call("HDEL", key, name)
    end
    for name, value in pairs(given.puts or {}) do
        call("HSET", key, name, value)
    end
    return 1
end

-- Claim the next maintenance pass if nobody has for that long. A clock that was set back must not stop sweeps.
function store.claim_sweep(key, now, given)
    local swept_at = tonumber(call("HGET", key, "swept_at") or nil)
    if swept_at and now >= swept_at and now - swept_at < microseconds(given.seconds) then
        return 0
    end
    call("HSET", key, "swept_at", whole(now))
    return 1
end

function store.now(_, now)
    return now
end

-- The decisions of the rules, for the test that compares them with `domain.settlement`: for each case the decision, the
-- end of a lease of that many seconds, and whether a lease with that end still settles.
function store.decide(_, now, given)
    local results = {}
    for place, case in ipairs(given.cases) do
        local leased, policy = case.leased, cjson.decode(case.policy)
        local decision = decisions.decide(case.event, leased, policy, now, given.random, case.delay_seconds)
        local is_live = LIVE[decision.state]
        results[place] = {
            decision.event, decision.state, is_live and decision.due_at or 0, is_live and decision.attempt or 0,
            optional(is_live and decision.expires_at or nil),
            decisions.lease_end(leased.expires_at, leased.deadline_at, now, given.seconds),
            decisions.is_held(leased.expires_at, leased.deadline_at, given.ends_at, now) and 1 or 0,
        }
    end
    return results
end
