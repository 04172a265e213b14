-- leased -> the decided state: settling and extending, by token; and leases that have lapsed.

-- Decide the next state of a message in flight, and store it.
function settlements.conclude(queue, group, flight, event, reason, delay_seconds, code, random)
    local decision = decisions.decide(event, flight, queue.policy, queue.now, random or 0, delay_seconds)
    reason = reason or REASONS[decision.event]
    local step = {
        event = decision.event, state = decision.state, first = flight.position, last = flight.position,
        by = flight.consumer, reason = reason, attempt = flight.attempt, token = flight.token, code = code,
    }
    leases.end_lease(group, flight)
    -- A stack trace belongs to the last error.
    flight.trace = nil
    if decision.event == "nak" or decision.event == "reject" or decision.event == "lease_end" then
        call("HINCRBY", group.key, "failed_attempts", 1)
    end
    if not LIVE[decision.state] then
        outcomes.finish(queue, group, step, flight.lane, true)
        return decision.state
    end
    audit.record(queue, group, step)
    leases.track(group, flight, {
        state = decision.state, attempt = decision.attempt, until_at = decision.due_at,
                expires_at = decision.expires_at,
        reason = reason or flight.reason,
    })
    if queues.keeps_order(queue) and event ~= "release" then
        settlements.release_later(queue, group, flight)
    end
    return decision.state
end

-- Release what was handed out behind a message that is retried, to keep the order.
function settlements.release_later(queue, group, blocking)
    local behind = {}
    local function add(priority, position)
        if priority > blocking.priority or priority == blocking.priority and position > blocking.position then
            behind[#behind + 1] = { priority, position }
        end
    end
    for _, lease in ipairs(leases.between(group, 0, END)) do
        local lane = log.lane(queue, lease.lane)
        if lease.token == blocking.token and lane.shard == blocking.shard then
            for position = lease.first, lease.last do
                add(lane.priority, position)
            end
        end
    end
    for _, one in ipairs(tracked.every(group)) do
        local row = one[2]
        if row.state == "leased" and row.token == blocking.token and row.s == blocking.shard then
            add(row.p, one[1])
        end
    end
    sort_by(behind, 1, 2)
    local reason = filled(REASONS.released_behind, whole(blocking.position))
    for _, one in ipairs(behind) do
        local flight = leases.flight(queue, group, blocking.token, one[2])
        if flight then
            settlements.conclude(queue, group, flight, "release", reason)
        end
    end
end

-- Whether an earlier message of the same receive and shard is still in flight.
local function is_out_of_order(queue, group, flight, event)
    if not decisions.would_end(event, flight.attempt, queue.policy) then
        return false
    end
    for _, lease in ipairs(leases.between(group, 0, END)) do
        local lane = log.lane(queue, lease.lane)
        if lease.token == flight.token and lane.shard == flight.shard and (lane.priority < flight.priority
                or lane.priority == flight.priority and lease.first < flight.position) then
            return true
        end
    end
    for _, one in ipairs(tracked.every(group)) do
        local row = one[2]
        if row.state == "leased" and row.token == flight.token and row.s == flight.shard and (row.p < flight.priority
                or row.p == flight.priority and one[1] < flight.position) then
            return true
        end
    end
    return false
end

-- The result of one settlement: a state, `=` and the state of the same settlement before, `lost` or `order`.
local function settle_one(queue, group, settle)
    local event, position, token = settle[1], settle[2], settle[3]
    local flight = leases.flight(queue, group, token, position)
    if not flight then
        local before = audit.settled_before(queue, group, position, token, event)
        return before and "=" .. before or "lost"
    end
    if queues.keeps_order(queue) and is_out_of_order(queue, group, flight, event) then
        return "order"
    end
    return settlements.conclude(queue, group, flight, event, settle[4], settle[5], settle[6], settle[7])
end

-- Acks of first attempts of one range in a row are settled together.
local function ack_run(queue, group, settles, place)
    local first = settles[place]
    if first[1] ~= "ack" or first[4] then
        return nil
    end
    local lease = leases.at(group, first[2])
    if not lease or lease.token ~= first[3] or lease.ends_at <= queue.now then
        return nil
    end
    local last = first[2]
    local count = 1
    while settles[place + count] do
        local one = settles[place + count]
        if one[1] ~= "ack" or one[4] or one[3] ~= first[3] or one[2] ~= last + 1 or one[2] > lease.last then
            break
        end
        last, count = one[2], count + 1
    end
    leases.split(group, lease, first[2], last)
    settlements.succeed(queue, group, lease, first[2], last)
    return count
end

function settlements.succeed(queue, group, lease, first, last)
    outcomes.finish(queue, group, {
        event = "ack", state = "succeeded", first = first, last = last, by = lease.consumer, attempt = 1,
        token = lease.token,
    }, lease.lane, true)
end

local function settle_in_order(queue, group, settles)
    local results, left = {}, {}
    for place = 1, #settles do
        left[place] = place
    end
    table.sort(left, function(one, other)
        if settles[one][2] ~= settles[other][2] then
            return settles[one][2] < settles[other][2]
        end
        return one < other
    end)
    while #left > 0 do
        local refused = {}
        for _, place in ipairs(left) do
            results[place] = settle_one(queue, group, settles[place])
            if results[place] == "order" then
                refused[#refused + 1] = place
            end
        end
        if #refused == #left then
            break
        end
        left = refused
    end
    return results
end

local function reader(key, now, given)
    local queue = shards.find(key, now)
    return queue, queue and groups.find(queue, given.group)
end

-- Settle each of given.settles: {event, position, token, reason, delay_seconds, code, random}.
function settlements.settle(key, now, given)
    local queue, group = reader(key, now, given)
    local results = {}
    if not group then
        for place = 1, #given.settles do
            results[place] = "lost"
        end
        return results
    end
    if queues.keeps_order(queue) then
        return settle_in_order(queue, group, given.settles)
    end
    local place = 1
    while place <= #given.settles do
        local count = ack_run(queue, group, given.settles, place)
        for i = place, place + (count or 1) - 1 do
            results[i] = count and "succeeded" or settle_one(queue, group, given.settles[i])
        end
        place = place + (count or 1)
    end
    return results
end

-- Ack a whole receive of first attempts, given as ranges; 0, with nothing changed, when part of it is not leased.
function settlements.ack_all(key, now, given)
    local queue, group = reader(key, now, given)
    if not group then
        return 0
    end
    local ranges = given.ranges
    local held_ranges, count = {}, 0
    for _, lease in ipairs(leases.between(group, ranges[1][1], ranges[#ranges][2])) do
        if lease.token == given.token then
            if lease.ends_at <= now then
                return 0
            end
            held_ranges[#held_ranges + 1] = lease
            count = count + lease.last - lease.first + 1
        end
    end
    -- The leases are the ranges, divided otherwise perhaps.
    local wanted, place = 0, 1
    for _, range in ipairs(ranges) do
        local at = range[1]
        wanted = wanted + range[2] - range[1] + 1
        while at <= range[2] do
            local lease = held_ranges[place]
            if not lease or lease.first ~= at or lease.last > range[2] then
                return 0
            end
            at, place = lease.last + 1, place + 1
        end
    end
    if count ~= wanted or queues.keeps_order(queue) and count ~= settlements.in_flight(group, given.token) then
        return 0
    end
    for _, lease in ipairs(held_ranges) do
        leases.drop(group, lease)
        settlements.succeed(queue, group, lease, lease.first, lease.last)
    end
    return 1
end

function settlements.in_flight(group, token)
    local count = 0
    for _, lease in ipairs(leases.between(group, 0, END)) do
        count = count + (lease.token == token and lease.last - lease.first + 1 or 0)
    end
    for _, member in ipairs(call("ZRANGE", group.tracked .. "l", 0, -1)) do
        count = count + (tracked.find(group, tonumber(member)).token == token and 1 or 0)
    end
    return count
end

-- -- extending ----------------------------------------------------------------------------------------------------

-- Extend a whole range that is asked for, if all its messages get the same end.
local function extend_range(queue, group, lease, asked, seconds, ends)
    local key = whole(lease.token) .. ":"
    local ends_at
    for position = lease.first, lease.last do
        if not asked[key .. whole(position)] then
            return false
        end
        local own = decisions.extended_end(leases.flight_in(queue, lease, position), lease.ends_at, queue.now, seconds)
        if ends_at and own ~= ends_at then
            return false
        end
        ends_at = own
    end
    leases.drop(group, lease)
    leases.add(group, lease.first, lease.last, lease.token, lease.lane, lease.consumer, ends_at)
    for position = lease.first, lease.last do
        ends[key .. whole(position)] = ends_at
    end
    return true
end

local function extend_one(queue, group, flight, seconds)
    local ends_at = decisions.extended_end(flight, flight.ends_at, queue.now, seconds)
    leases.end_lease(group, flight)
    leases.track(group, flight, {
        state = "leased", attempt = flight.attempt, until_at = ends_at, expires_at = flight.expires_at,
        consumer = flight.consumer, reason = flight.reason,
    })
    return ends_at
end

function settlements.extend(key, now, given)
    local queue, group = reader(key, now, given)
    local asked, ends, results = {}, {}, {}
    for _, one in ipairs(given.leases) do
        asked[whole(one[1]) .. ":" .. whole(one[2])] = true
    end
    for place, one in ipairs(given.leases) do
        local mark = whole(one[1]) .. ":" .. whole(one[2])
        local flight = group and not ends[mark] and leases.flight(queue, group, one[1], one[2])
        if flight and not (flight.lease and extend_range(queue, group, flight.lease, asked, given.seconds, ends)) then
            ends[mark] = extend_one(queue, group, flight, given.seconds)
        end
        results[place] = ends[mark] or false
    end
    return results
end

-- -- lapsed leases ------------------------------------------------------------------------------------------------

-- Leases of an ordered queue end by whole receives of a shard: one call must know which message was the first.
local function whole_receives(queue, ended, rows, limit)
    local counts, chosen, total = {}, {}, 0
    local function add(mark, count)
        if not counts[mark] and total < limit then
            chosen[mark] = true
        end
        counts[mark] = (counts[mark] or 0) + count
        total = total + count
    end
    local function mark_of(token, shard)
        return whole(token) .. ":" .. whole(shard)
    end
    for _, lease in ipairs(ended) do
        lease.mark = mark_of(lease.token, log.lane(queue, lease.lane).shard)
        add(lease.mark, lease.last - lease.first + 1)
    end
    for _, one in ipairs(rows) do
        one.mark = mark_of(one[2].token, one[2].s)
        add(one.mark, 1)
    end
    local function kept(list)
        local found = {}
        for _, one in ipairs(list) do
            if chosen[one.mark] then
                found[#found + 1] = one
            end
        end
        return found
    end
    return kept(ended), kept(rows), END
end

-- Drop leases and return their messages as flights, at most `limit` of them; the rest stays leased.
local function drop_leases(queue, group, ended, rows, limit)
    local found = {}
    if queues.keeps_order(queue) then
        ended, rows, limit = whole_receives(queue, ended, rows, limit)
    end
    for _, lease in ipairs(ended) do
        local last = min(lease.last, lease.first + limit - #found - 1)
        for position = lease.first, last do
            found[#found + 1] = leases.flight_in(queue, lease, position)
        end
        if last >= lease.first then
            leases.split(group, lease, lease.first, last)
        end
    end
    for _, one in ipairs(rows) do
        if #found < limit then
            found[#found + 1] = leases.tracked_flight(queue, one[1], one[2])
            tracked.remove(group, one[1])
        end
    end
    if queues.keeps_order(queue) then
        sort_by(found, "priority", "position")
    else
        sort_by(found, "position")
    end
    return found
end

-- Settle messages whose leases were dropped. All are dropped before any is settled: an ordered queue must not release
-- what has lapsed.
local function end_leases(queue, group, flights, reason)
    local heads = {}
    for _, flight in ipairs(flights) do
        -- In an ordered queue the consumer was processing the first message of its lease; the others did not fail. At
        -- most once: how far the consumer got is unknown, so none may be delivered again.
        local event = "lease_end"
        if queues.keeps_order(queue) then
            local mark = whole(flight.token) .. ":" .. whole(flight.shard)
            event = heads[mark] and "release" or event
            heads[mark] = true
        end
        flight.lease = nil
        settlements.conclude(queue, group, flight, event, reason)
    end
    return #flights
end

local function rows_of(group, positions)
    local found = {}
    for place, position in ipairs(positions) do
        found[place] = { position, tracked.find(group, position) }
    end
    return found
end

-- End about `limit` lapsed leases of the group; return how many.
function lapsed.reclaim(queue, group, limit)
    local most = queues.keeps_order(queue) and -1 or limit
    local ended = leases.lapsed(group, queue.now, most)
    local rows = rows_of(group, tracked.upto(group, "l", queue.now, most))
    return end_leases(queue, group, drop_leases(queue, group, ended, rows, limit))
end

-- End about `limit` leases of a consumer that is gone, which it got up to a token; return how many.
function lapsed.reclaim_from(queue, group, consumer, token, limit)
    local ended, rows = {}, {}
    for _, lease in ipairs(leases.between(group, 0, END)) do
        if lease.consumer == consumer and lease.token <= token then
            ended[#ended + 1] = lease
        end
    end
    for _, one in ipairs(rows_of(group, tracked.upto(group, "l", END))) do
        if one[2].consumer == consumer and one[2].token <= token then
            rows[#rows + 1] = one
        end
    end
    local flights = drop_leases(queue, group, ended, rows, limit)
    return end_leases(queue, group, flights, filled(REASONS.consumer_gone, consumer))
end

-- End retries of the group that expired before they were delivered again, at most `limit` of them.
function lapsed.expire_tracked(queue, group, limit)
    local count = 0
    for _, kind in ipairs(queues.at_most_once(queue) and { { "x", "expire" }, { "e", "deadline" } } or { { "x",
            "expire" } }) do
        local set, event = kind[1], kind[2]
        for _, position in ipairs(count < limit and tracked.upto(group, set, queue.now, limit - count) or {}) do
            local row = tracked.remove(group, position)
            outcomes.finish(queue, group, {
                event = event, state = "expired", first = position, last = position, by = "system",
                reason = REASONS[event], attempt = row.attempt,
            }, row.lane, true)
            count = count + 1
        end
    end
    return count
end
