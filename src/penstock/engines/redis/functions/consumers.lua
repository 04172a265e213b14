-- Registered consumers: birth order, heartbeats, and the removal of consumers that missed them. A hash by name: id,
-- registered_at, heartbeat_at, seconds, missed, per_sweep, beats.

local REMEMBERED = 24 * 3600 * 1000000

-- Every consumer of a group in birth order: name and row.
local function every(group)
    local found, rows = {}, call("HGETALL", group.consumers)
    for i = 1, #rows, 2 do
        local row = unpacked(rows[i + 1])
        row.name = rows[i]
        found[#found + 1] = row
    end
    sort_by(found, "id")
    return found
end

-- The place of a consumer in birth order, and how many there are.
function consumers.place(group, name)
    local found = every(group)
    for index, row in ipairs(found) do
        if row.name == name then
            return index - 1, #found
        end
    end
end

local function put(group, name, row)
    call("HSET", group.consumers, name, pack(row))
end

local function info(group, row, index, living)
    return {
        row.id, row.name, group.name, index, living, row.registered_at, row.heartbeat_at, tostring(row.seconds),
        row.missed, row.per_sweep,
    }
end

local function found_info(group, name)
    for index, row in ipairs(every(group)) do
        if row.name == name then
            return info(group, row, index - 1, call("HLEN", group.consumers))
        end
    end
end

function consumers.register(key, now, given)
    local queue = queues.ensure(key, now)
    local group = groups.ensure_leasing(queue, given.group)
    local known = call("HGET", group.consumers, given.name)
    local row = known and unpacked(known) or { id = given.number, registered_at = now, beats = 0 }
    row.heartbeat_at, row.seconds, row.missed, row.per_sweep = now, given.seconds, given.missed, given.per_sweep
    put(group, given.name, row)
    call("HDEL", group.removed_consumers, given.name)
    return found_info(group, given.name)
end

function consumers.heartbeat(key, now, given)
    local queue = queues.get(key, now)
    local group = groups.get(queue, given.group)
    local known = call("HGET", group.consumers, given.name)
    if not known then
        refuse("CONSUMER_REMOVED", given.name)
    end
    local row = unpacked(known)
    row.heartbeat_at, row.beats = now, row.beats + 1
    put(group, given.name, row)
    if row.beats % row.per_sweep == 0 then
        consumers.remove_missing(queue, group)
        consumers.end_leases(queue, group, STEPS)
    end
    return found_info(group, given.name)
end

-- Remove a consumer whose leases are to end at once. The hash of leaving consumers says up to which token: the consumer
-- may register again and receive before the last of them has ended.
local function leave(queue, group, name)
    call("HDEL", group.consumers, name)
    call("HSET", group.leaving, name, whole(queue.token))
end

-- End leases of a consumer that has left, at most `limit`; return how many.
local function end_leases_of(queue, group, name, limit)
    local token = tonumber(call("HGET", group.leaving, name) or 0)
    local count = lapsed.reclaim_from(queue, group, name, token, limit)
    if count < limit then
        call("HDEL", group.leaving, name)
    end
    return count
end

-- The same for every consumer that has left.
function consumers.end_leases(queue, group, limit)
    local count = 0
    for _, name in ipairs(call("HKEYS", group.leaving)) do
        if count < limit then
            count = count + end_leases_of(queue, group, name, limit - count)
        end
    end
    return count
end

-- Deregister, or with `again` go on with the leases: how many have ended, and whether there are more.
function consumers.deregister(key, now, given)
    local queue = queues.get(key, now)
    local group = groups.get(queue, given.group)
    if not given.again then
        leave(queue, group, given.name)
    end
    local count = end_leases_of(queue, group, given.name, STEPS)
    return { count, call("HEXISTS", group.leaving, given.name) }
end

-- Remove consumers that missed too many heartbeats.
function consumers.remove_missing(queue, group)
    local count = 0
    for _, row in ipairs(every(group)) do
        if row.heartbeat_at + (row.missed + 1) * row.seconds * 1000000 < queue.now then
            leave(queue, group, row.name)
            call("HSET", group.removed_consumers, row.name, whole(queue.now))
            count = count + 1
        end
    end
    if count > 0 then
        for name, at in pairs(pairs_of(call("HGETALL", group.removed_consumers))) do
            if tonumber(at) < queue.now - REMEMBERED then
                call("HDEL", group.removed_consumers, name)
            end
        end
    end
    return count
end

function consumers.list(key, now)
    local queue = queues.find(key, now)
    local found = {}
    for _, group in ipairs(queue and groups.every(queue) or {}) do
        local own = every(group)
        for index, row in ipairs(own) do
            found[#found + 1] = info(group, row, index - 1, #own)
        end
    end
    return found
end
