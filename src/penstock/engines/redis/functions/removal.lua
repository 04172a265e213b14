-- Removing messages for good: single ones, or the oldest ones, before retention would; emptying and deleting queues.
--
-- A message that is live ends first: it is counted as cancelled in the group, its lease is lost, its address is freed
-- and its batch continues without it. Trimming keeps dead letters, as retention does; removing deletes them too.

local function step_of(first, last, attempt)
    return {
        event = "remove", state = "cancelled", first = first, last = last, by = "system", reason = REASONS.remove,
        attempt = attempt or 0,
    }
end

-- Ranges that the group has not read and that have not ended in it.
local function end_unread(queue, group, first, last)
    for _, lane in ipairs(cursors.unread(queue, group)) do
        for _, run in ipairs(log.runs(queue, lane.name, max(lane.position, first - 1), last)) do
            local begin
            for position = run[1], run[2] + 1 do
                local is_live = position <= run[2] and not cursors.is_skipped(group, position)
                if is_live then
                    begin = begin or position
                elseif begin then
                    outcomes.finish(queue, group, step_of(begin, position - 1), lane.name, false)
                    begin = nil
                end
            end
        end
    end
end

-- End the messages of a range in every group in which they are live.
local function end_live(queue, first, last)
    for _, group in ipairs(groups.leasing(queue)) do
        for _, one in ipairs(tracked.between(group, first, last)) do
            tracked.remove(group, one[1])
            outcomes.finish(queue, group, step_of(one[1], one[1], one[2].attempt), one[2].lane, false)
        end
        for _, lease in ipairs(leases.between(group, first, last)) do
            local from, upto = max(first, lease.first), min(last, lease.last)
            leases.split(group, lease, from, upto)
            outcomes.finish(queue, group, step_of(from, upto, 1), lease.lane, false)
        end
        end_unread(queue, group, first, last)
    end
end

-- Split the run around the position; counts of the lane decrease by one.
local function leave_lane(queue, message)
    local name, position = log.lane_of(message), message.position
    local runs = queue.key .. ":r" .. name
    local row = call("ZRANGEBYSCORE", runs, whole(position), "+inf", "WITHSCORES", "LIMIT", 0, 1)
    local first, last = tonumber(row[1]), tonumber(row[2])
    call("ZREM", runs, row[1])
    if first < position then
        call("ZADD", runs, whole(position - 1), whole(first))
    end
    if position < last then
        call("ZADD", runs, whole(last), whole(position + 1))
    end
    for _, group in ipairs(groups.every(queue)) do
        local reached = call("HGET", group.cursors, name)
        if reached and tonumber(reached) >= position then
            call("HINCRBY", group.cursors, "n" .. name, -1)
        end
        call("ZREM", group.skips, whole(position))
    end
    call("HINCRBY", queue.key .. ":ln", "n" .. name, -1)
    queue.lanes = nil
end

local function remove_at(queue, position)
    end_live(queue, position, position)
    local message = log.at(queue, position)
    for _, group in ipairs(groups.every(queue)) do
        letters.delete(queue, group, position)
    end
    if position > queue.trimmed then
        leave_lane(queue, message)
    end
    log.drop_times(queue, position, message)
    call("XDEL", queue.key .. ":log", whole(position) .. "-0")
    call("HDEL", queue.key .. ":kp", "m" .. whole(position), "p" .. whole(position))
    call("ZREM", queue.key .. ":kz", whole(position))
    call("ZREMRANGEBYSCORE", queue.key .. ":wz", whole(position), whole(position))
    call("HSET", queue.key .. ":rm", whole(position), whole(message.c))
    audit.clear(queue, position)
    retention.forget(queue, message)
end

function removal.remove(key, now, given)
    local queue = shards.find(key, now)
    local removed, done = 0, {}
    for _, id in ipairs(queue and given.ids or {}) do
        local position, number = log.locate(queue, id)
        if number and not done[id] then
            -- End a held message in all groups and append it, so that it can be removed like any other.
            promotion.withdraw(queue, { number }, step_of(0, 0))
            position = log.locate(queue, id)
        end
        if position and not done[id] then
            remove_at(queue, position)
            removed = removed + 1
        end
        done[id] = true
    end
    return removed
end

-- The last position before the newest `keep` messages; 0 when there are no more than that.
local function last_to_trim(queue, keep)
    local runs = {}
    for _, lane in ipairs(log.lanes(queue)) do
        for _, run in ipairs(log.runs(queue, lane.name, queue.trimmed, END)) do
            runs[#runs + 1] = run
        end
    end
    table.sort(runs, function(one, other)
        return one[2] > other[2]
    end)
    for _, run in ipairs(runs) do
        local width = run[2] - run[1] + 1
        if width > keep then
            return run[2] - keep
        end
        keep = keep - width
    end
    return 0
end

-- Remove part of the oldest messages: all up to a position, or all but the newest `keep`. Returns how many, and whether
-- there is more to remove.
function removal.trim(key, now, given)
    local queue = shards.find(key, now)
    if not queue then
        return { 0, 0 }
    end
    local upto = given.upto and min(given.upto, queue.last) or last_to_trim(queue, given.keep or 0)
    if upto <= queue.trimmed then
        return { 0, 0 }
    end
    local piece = retention.piece(queue, upto)
    end_live(queue, queue.trimmed + 1, piece)
    for _, group in ipairs(groups.leasing(queue)) do
        for _, lane in ipairs(log.lanes(queue)) do
            local position, passed = cursors.find(queue, group, lane)
            if position < piece then
                cursors.move(group, lane, piece, passed + log.count(queue, lane.name, position, piece))
            end
        end
    end
    return { retention.trim_to(queue, piece), piece < upto and 1 or 0 }
end

-- -- queues -------------------------------------------------------------------------------------------------------

local OUTCOMES = { "succeeded", "rejected", "failed", "lease_expired", "expired", "cancelled" }

-- How many messages a flush would remove.
function removal.count(queue)
    local count = queue.held
    local row = pairs_of(call("HGETALL", queue.key .. ":ln"))
    for field, number in pairs(row) do
        if field:sub(1, 1) == "n" then
            count = count + tonumber(number) - tonumber(row["t" .. field:sub(2)] or 0)
        end
    end
    return count
end

local function abandon_batches(queue)
    for _, number in ipairs(call("HKEYS", queue.key .. ":b")) do
        batches.abandon(queue, batches.find(queue, tonumber(number)))
    end
end

local function flush_group(queue, group)
    for _, state in ipairs(OUTCOMES) do
        local count = tonumber(call("HGET", group.key, state) or 0)
        if count ~= 0 then
            outcomes.uncount(group, state, count)
        end
    end
    call("HDEL", group.key, "leased")
    if group.stream then
        call("HSET", group.key, "stream", whole(group.table == "messages" and queue.last or queue.entry))
    end
    groups.delete_messages(group)
end

-- Remove every message. The queue's batches are removed too; batches of other queues continue without the members they
-- had here.
function removal.flush_queue(queue)
    abandon_batches(queue)
    batches.leave_all(queue)
    local count = removal.count(queue)
    windows.keep_last(queue, queue.last)
    local newest = call("XREVRANGE", queue.key .. ":a", "+", "-", "COUNT", 1)[1]
    if newest then
        audit.set_trimmed(queue, tonumber(newest[1]:match("^%d+")), unpacked(newest[2][2]).a)
    end
    for _, group in ipairs(groups.every(queue)) do
        flush_group(queue, group)
    end
    for _, lane in ipairs(log.lanes(queue)) do
        call("UNLINK", queue.key .. ":r" .. lane.name)
    end
    for _, suffix in ipairs(queues.OWN_KEYS) do
        call("UNLINK", queue.key .. suffix)
    end
    queue.trimmed, queue.held, queue.lanes, queue.groups = queue.last, 0, nil, nil
    call("HSET", queue.key, "trimmed", whole(queue.last), "held", 0)
    return count
end

function removal.flush(key, now)
    local queue = shards.find(key, now)
    return queue and removal.flush_queue(queue) or 0
end

-- Flush the queue and remove all its groups: only the policy is left.
function removal.clear(key, now)
    local queue = shards.find(key, now)
    if not queue then
        return 0
    end
    local gone = groups.every(queue)
    local count = removal.flush_queue(queue)
    for _, group in ipairs(gone) do
        groups.delete_keys(group)
    end
    call("DEL", queue.key .. ":gs")
    call("HSET", queue.key, "primary", 0)
    return (#gone > 0 or count > 0) and 1 or 0
end

-- Remove the queue itself. The numbers it gave out stay, so that a new queue of the name does not give them out again.
-- Answer nothing when a schedule of the queue was declared since the caller looked for schedules.
function removal.delete(key, now, given)
    local queue = queues.get(key, now)
    if not given.is_part and (call("HGET", key, "scheduled") or "") ~= given.scheduled then
        return false
    end
    local named = {}
    for _, group in ipairs(given.is_part and {} or groups.every(queue)) do
        for _, name in ipairs(call("HKEYS", group.consumers)) do
            named[#named + 1] = name
        end
    end
    if #named > 0 then
        table.sort(named)
        refuse("CONSUMERS_REGISTERED", named)
    end
    return removal.delete_queue(queue)
end

function removal.delete_queue(queue)
    local gone = groups.every(queue)
    local count = removal.flush_queue(queue)
    for _, group in ipairs(gone) do
        groups.delete_keys(group)
    end
    sink.drop_all(queue)
    joins.drop_all(queue)
    call("DEL", queue.key .. ":gs")
    call("HDEL", queue.key, "policy", "created_at", "salt", "held", "trimmed", "trimmed_entry", "trimmed_at",
        "trimmed_number", "trimmed_entry_at", "token", "primary", "group", "held_number", "member",
        "slots", "shard", "mixed", "revision")
    if queue.slots > 0 and queue.shard == 0 then
        call("HSET", queue.key, "deleted_slots", whole(queue.slots))
    end
    return count
end
