-- Pages of live messages by state, without payloads; and what only the Redis Streams commands need.

local function summary(queue, message, attempt, reason, due_at)
    return { log.id_of(queue, message), message.position or false, message.c, attempt, optional(reason),
            optional(due_at) }
end

-- Ready messages after a place (priority, kind, position): best priority first, retries before unread messages.
function listing.ready(key, now, given)
    local queue = queues.get(key, now)
    local group = groups.find(queue, given.group)
    local priority, kind, position = unpack(given.after)
    local found = {}
    for _, one in ipairs(group and tracked.ready(group, END) or {}) do
        local is_later = one[2] > priority or one[2] == priority and kind == 0 and one[1] > position
        if is_later and #found < given.limit then
            local row = tracked.find(group, one[1])
            found[#found + 1] = { one[2], 0, one[1], summary(queue, log.at(queue, one[1]), row.attempt, row.reason) }
        end
    end
    local unread, reached = 0, 0
    for _, lane in ipairs(cursors.unread(queue, group)) do
        if lane.priority >= priority and not (lane.priority > reached and unread >= given.limit) then
            reached = lane.priority
            local after = lane.priority == priority and kind == 1 and max(lane.position, position) or lane.position
            for _, message in ipairs(inspection.unread_in(queue, group, lane, after, given.limit)) do
                unread = unread + 1
                found[#found + 1] = { lane.priority, 1, message.position, summary(queue, message, 0) }
            end
        end
    end
    return found
end

-- Held messages: delayed ones and retries by due time (phase 0), then those of batches that have not started (phase 2).
-- Each: phase, due time or batch number, kind, number, summary, name of the batch.
function listing.held(key, now, given)
    local queue = queues.get(key, now)
    local group = groups.find(queue, given.group)
    local found = {}
    for _, field in ipairs(call("HKEYS", queue.key .. ":h")) do
        local message = held.find(queue, tonumber(field))
        local name = message.b and batches.name_of(queue, message.b)
        if message.o then
            found[#found + 1] = { 2, message.b.n, 0, message.number, summary(queue, message, 0), optional(name) }
        else
            found[#found + 1] = { 0, message.v, 0, message.number, summary(queue, message, 0, nil, message.v),
                    optional(name) }
        end
    end
    for _, position in ipairs(group and tracked.upto(group, "d", END) or {}) do
        local row = tracked.find(group, position)
        local one = summary(queue, log.at(queue, position), row.attempt, row.reason, row.until_at)
        found[#found + 1] = { 0, row.until_at, 1, position, one, false }
    end
    local after = given.after
    local later = {}
    for _, one in ipairs(found) do
        for i = 1, 4 do
            if one[i] ~= after[i] then
                if one[i] > after[i] then
                    later[#later + 1] = one
                end
                break
            end
        end
    end
    sort_by(later, 1, 2, 3, 4)
    while #later > given.limit do
        table.remove(later)
    end
    return later
end

-- -- streams ------------------------------------------------------------------------------------------------------

function listing.reached(key, now, given)
    local queue = queues.find(key, now)
    local group = queue and groups.find(queue, given.group)
    if not group then
        return 0
    end
    local reached = group.stream or 0
    for _, lane in ipairs(log.lanes(queue)) do
        reached = max(reached, tonumber(call("HGET", group.cursors, lane.name) or 0))
    end
    return reached
end

-- Payload sizes of what a receive would deliver next, until they are more than `size` together.
function listing.fitting(key, now, given)
    local queue = queues.find(key, now)
    if not queue then
        return given.limit
    end
    local group = groups.find(queue, given.group or queues.default_group(queue))
    local total, count = 0, 0
    local function is_full(payload)
        total = total + #payload
        count = count + 1
        return total > given.size or count > given.limit
    end
    for _, one in ipairs(group and tracked.every(group) or {}) do
        if (one[2].state == "ready" or one[2].until_at <= now) and is_full(log.at(queue, one[1]).payload) then
            return min(max(1, count - 1), given.limit)
        end
    end
    for _, lease in ipairs(group and leases.lapsed(group, now, given.limit) or {}) do
        for _, message in ipairs(log.read(queue, lease.first, lease.last)) do
            if is_full(message.payload) then
                return min(max(1, count - 1), given.limit)
            end
        end
    end
    for _, number in ipairs(held.upto(queue, ":hd", given.limit)) do
        if is_full(held.payload(queue, number)) then
            return min(max(1, count - 1), given.limit)
        end
    end
    for _, lane in ipairs(cursors.unread(queue, group)) do
        for _, run in ipairs(log.runs(queue, lane.name, lane.position, END)) do
            for _, message in ipairs(log.read(queue, run[1], run[2], given.limit)) do
                if is_full(message.payload) then
                    return min(max(1, count - 1), given.limit)
                end
            end
        end
    end
    return given.limit
end

-- Position, time sent and payload size of messages that have not expired.
function listing.places(key, now, given)
    local queue = queues.find(key, now)
    local found = {}
    for _, message in ipairs(queue and inspection.between(queue, given.after, given.upto, given.limit,
            given.backwards) or {}) do
        if not message.x or message.x > now then
            found[#found + 1] = { message.position, message.c, #message.payload }
        end
    end
    return found
end

-- -- claims -------------------------------------------------------------------------------------------------------

-- Make a message ready out of order: unread, passed by, waiting for a retry, or ended. False when it has expired or is
-- leased.
local function make_ready(queue, group, position)
    local row = tracked.find(group, position)
    if row then
        if row.state == "held" then
            promotion.ready_now(queue, group, position, row)
        end
        return row.state ~= "leased"
    end
    local message = position > queue.trimmed and log.at(queue, position)
    if not message or message.w or message.x and message.x <= queue.now or leases.at(group, position) then
        return false
    end
    local last = audit.last(queue, group, position)
    if last and not LIVE[last.s] then
        audit.record(queue, group, {
            event = "seek", state = "ready", first = position, last = position, by = "system",
            reason = REASONS.claimed_by_force, attempt = 0,
        })
        outcomes.uncount(group, last.s, 1)
        letters.delete(queue, group, position)
    end
    local lane = log.lane_of(message)
    if position > cursors.position(queue, group, lane) then
        cursors.skip(group, position)
    end
    tracked.put(group, position, {
        lane = lane, p = message.p or 0, s = message.s or 0, state = "ready", attempt = 0, until_at = queue.now,
        x = message.x, d = message.d, b = message.b, token = 0,
    })
    return true
end

-- leased -> leased by another consumer.
function claims.take_over(key, now, given)
    local queue = queues.get(key, now)
    local group = groups.get(queue, given.group)
    groups.check_leasing(queue, group)
    if token_given and token_given <= queue.token then
        return { group.name, queue.salt, { { 0, {} } } }
    end
    local event, reason = given.counts and "lease_end" or "release", filled(REASONS.taken_over, given.consumer)
    local free, done = {}, {}
    for _, id in ipairs(given.ids) do
        local position = not done[id] and log.locate(queue, id)
        done[id] = true
        local lease, row = position and leases.at(group, position), position and tracked.find(group, position)
        local ends_at = lease and lease.ends_at or row and row.state == "leased" and row.until_at
        if ends_at and ends_at > now then
            local flight = leases.flight(queue, group, lease and lease.token or row.token, position)
            if flight and settlements.conclude(queue, group, flight, event, reason) == "ready" then
                free[#free + 1] = position
            end
        elseif position and given.force and make_ready(queue, group, position) then
            free[#free + 1] = position
        end
    end
    return { group.name, queue.salt, { deliveries.receive_again(queue, group, given.consumer, free,
            given.lease_seconds) } }
end
