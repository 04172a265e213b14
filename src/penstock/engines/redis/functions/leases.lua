-- Leases: messages in flight, and messages that a group tracks one by one.
--
-- First attempts are leased as ranges, one element for a whole receive, in two sorted sets: by last position and by
-- end. A message is tracked once it differs from its neighbours: it is retried, or its lease ends at a time of its own.
-- Tracked messages are a hash by position, with sorted sets of the held, ready and leased ones, and of those that wait by
-- expiry and by deadline.

local function range_of(member)
    local row = unpacked(member)
    return { first = row[1], last = row[2], token = row[3], lane = row[4], consumer = row[5], ends_at = row[6],
            member = member }
end

function leases.add(group, first, last, token, lane, consumer, ends_at)
    local member = pack({ first, last, token, lane, consumer, ends_at })
    call("ZADD", group.leases, whole(last), member)
    call("ZADD", group.lease_ends, whole(ends_at), member)
    call("HINCRBY", group.key, "leased", last - first + 1)
end

function leases.drop(group, lease)
    call("ZREM", group.leases, lease.member)
    call("ZREM", group.lease_ends, lease.member)
    call("HINCRBY", group.key, "leased", lease.first - lease.last - 1)
end

-- Remove positions from a range; the rest on either side stays leased.
function leases.split(group, lease, first, last)
    leases.drop(group, lease)
    if lease.first < first then
        leases.add(group, lease.first, first - 1, lease.token, lease.lane, lease.consumer, lease.ends_at)
    end
    if last < lease.last then
        leases.add(group, last + 1, lease.last, lease.token, lease.lane, lease.consumer, lease.ends_at)
    end
end

-- The range that contains a position, whatever its token.
function leases.at(group, position)
    local member = call("ZRANGEBYSCORE", group.leases, whole(position), "+inf", "LIMIT", 0, 1)[1]
    local lease = member and range_of(member)
    if lease and lease.first <= position then
        return lease
    end
end

-- Ranges between two positions, in order.
function leases.between(group, first, last)
    local found, from = {}, whole(first)
    repeat
        local members = call("ZRANGEBYSCORE", group.leases, from, "+inf", "LIMIT", 0, AT_A_TIME)
        for _, member in ipairs(members) do
            local lease = range_of(member)
            if lease.first > last then
                return found
            end
            from = "(" .. whole(lease.last)
            found[#found + 1] = lease
        end
    until #members == 0
    return found
end

-- The range with the first position.
function leases.first(group)
    local member = call("ZRANGE", group.leases, 0, 0)[1]
    return member and range_of(member)
end

function leases.lapsed(group, now, limit)
    local found = {}
    for _, member in ipairs(call("ZRANGEBYSCORE", group.lease_ends, "-inf", whole(now), "LIMIT", 0, limit or -1)) do
        found[#found + 1] = range_of(member)
    end
    return found
end

-- -- tracked messages ---------------------------------------------------------------------------------------------
-- A tracked message: lane, p priority, s shard, state, attempt, until_at, x expires_at, d deadline_at, b batch, token,
-- consumer, reason, trace.

local SETS = { held = "d", ready = "r", leased = "l" }

local function place(group, position, row, add)
    local set, member, score = group.tracked .. SETS[row.state], padded(position), row.until_at
    if row.state == "ready" then
        member, score = format("%07.0f:", row.p) .. member, 0
    end
    local ends = row.state ~= "leased" and { x = row.x, e = row.d } or {}
    if add then
        call("ZADD", set, whole(score), member)
        for name, at in pairs(ends) do
            call("ZADD", group.tracked .. name, whole(at), padded(position))
        end
    else
        call("ZREM", set, member)
        for name in pairs(ends) do
            call("ZREM", group.tracked .. name, padded(position))
        end
    end
end

function tracked.find(group, position)
    local row = call("HGET", group.tracked, whole(position))
    return row and unpacked(row) or nil
end

function tracked.put(group, position, row)
    local before = tracked.find(group, position)
    if before then
        place(group, position, before, false)
    end
    call("HSET", group.tracked, whole(position), pack(row))
    place(group, position, row, true)
end

function tracked.remove(group, position)
    local before = tracked.find(group, position)
    if before then
        place(group, position, before, false)
        call("HDEL", group.tracked, whole(position))
    end
    return before
end

-- Positions of a set in its order, up to a score.
function tracked.upto(group, set, score, limit)
    local found = {}
    for _, member in ipairs(call("ZRANGEBYSCORE", group.tracked .. set, "-inf", whole(score), "LIMIT", 0, limit
            or -1)) do
        found[#found + 1] = tonumber(member)
    end
    return found
end

-- Ready retries in receive order: position and priority.
function tracked.ready(group, limit)
    local found = {}
    for _, member in ipairs(call("ZRANGE", group.tracked .. "r", 0, limit - 1)) do
        local priority, position = member:match("^(%d+):(%d+)$")
        found[#found + 1] = { tonumber(position), tonumber(priority) }
    end
    return found
end

-- The first position that is tracked.
function tracked.first(group)
    local first
    for _, position in ipairs(call("HKEYS", group.tracked)) do
        first = min(first or END, tonumber(position))
    end
    return first
end

-- Every tracked message in log order: position and row.
function tracked.every(group)
    local found, rows = {}, call("HGETALL", group.tracked)
    for i = 1, #rows, 2 do
        found[#found + 1] = { tonumber(rows[i]), unpacked(rows[i + 1]) }
    end
    sort_by(found, 1)
    return found
end

-- Tracked messages between two positions, in log order.
function tracked.between(group, first, last)
    local found = {}
    if last - first < call("HLEN", group.tracked) then
        for position = first, last do
            local row = tracked.find(group, position)
            if row then
                found[#found + 1] = { position, row }
            end
        end
        return found
    end
    for _, one in ipairs(tracked.every(group)) do
        if one[1] >= first and one[1] <= last then
            found[#found + 1] = one
        end
    end
    return found
end

-- -- messages in flight -------------------------------------------------------------------------------------------

-- A message of a leased range, as one in flight. Without checks its lane has no message with times, address or batch.
function leases.flight_in(queue, lease, position)
    local lane = log.lane(queue, lease.lane)
    local message = lane.is_checked and log.at(queue, position) or {}
    return {
        position = position, lane = lease.lane, priority = lane.priority, shard = lane.shard, attempt = 1,
        expires_at = message.x, deadline_at = message.d, batch = message.b, cancelled = batches.is_cancelled(queue,
                message.b),
        token = lease.token, consumer = lease.consumer, lease = lease, ends_at = lease.ends_at,
    }
end

function leases.tracked_flight(queue, position, row)
    return {
        position = position, lane = row.lane, priority = row.p, shard = row.s, attempt = row.attempt,
                expires_at = row.x,
        deadline_at = row.d, batch = row.b, cancelled = batches.is_cancelled(queue, row.b), token = row.token,
        consumer = row.consumer, reason = row.reason, ends_at = row.until_at, trace = row.trace,
    }
end

-- The message, if this token still may settle it.
function leases.flight(queue, group, token, position)
    local lease = leases.at(group, position)
    local flight
    if lease then
        flight = lease.token == token and leases.flight_in(queue, lease, position)
    else
        local row = tracked.find(group, position)
        flight = row and row.state == "leased" and row.token == token and leases.tracked_flight(queue, position, row)
    end
    if flight and decisions.is_held(flight.expires_at, flight.deadline_at, flight.ends_at, queue.now) then
        return flight
    end
end

function leases.end_lease(group, flight)
    if flight.lease then
        leases.split(group, flight.lease, flight.position, flight.position)
    else
        tracked.remove(group, flight.position)
    end
end

-- leased -> held, ready or leased, tracked from now on.
function leases.track(group, flight, change)
    tracked.put(group, flight.position, {
        lane = flight.lane, p = flight.priority, s = flight.shard, state = change.state, attempt = change.attempt,
        until_at = change.until_at, x = change.expires_at, d = flight.deadline_at, b = flight.batch,
                token = flight.token,
        consumer = change.consumer, reason = change.reason, trace = flight.trace,
    })
end
