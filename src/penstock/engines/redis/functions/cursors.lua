-- Cursors: the position of a group in each lane, and how many messages of the lane lie before it.

function cursors.position(queue, group, lane)
    return tonumber(call("HGET", group.cursors, lane) or queue.trimmed)
end

-- The cursor of a lane, and the messages passed.
function cursors.find(queue, group, lane)
    local row = group and call("HMGET", group.cursors, lane.name, "n" .. lane.name) or {}
    return tonumber(row[1] or queue.trimmed), tonumber(row[2] or lane.trimmed)
end

function cursors.move(group, lane, position, passed)
    call("HSET", group.cursors, lane.name, whole(position), "n" .. lane.name, whole(passed))
end

-- Lanes with unread messages, and the cursor in each; a group that does not exist has read nothing.
function cursors.unread(queue, group)
    local found = {}
    for _, lane in ipairs(log.lanes(queue)) do
        local position, passed = cursors.find(queue, group, lane)
        if lane.last > position and lane.sent > passed then
            lane.position, lane.passed = position, passed
            found[#found + 1] = lane
        end
    end
    return found
end

function cursors.first_unread(queue, group)
    local first
    for _, lane in ipairs(cursors.unread(queue, group)) do
        local position = log.first_after(queue, lane.name, lane.position)
        if position and (not first or position < first) then
            first = position
        end
    end
    return first
end

-- Positions ahead of the cursor that are not delivered when the cursor reaches them.
function cursors.skip(group, position)
    call("ZADD", group.skips, whole(position), whole(position))
end

function cursors.is_skipped(group, position)
    return call("ZSCORE", group.skips, whole(position)) ~= false
end

-- -- seeking ------------------------------------------------------------------------------------------------------

function cursors.check_place(queue, group)
    if group and group.stream and group.table ~= "messages" then
        refuse("FOLLOWS_AUDIT", group.name)
    end
end

-- The position that a seek target resolves to.
function cursors.place_of(queue, target, is_time)
    if target == "start" then
        return queue.trimmed
    elseif target == "end" then
        return queue.last
    elseif is_time then
        return max(queue.trimmed, cursors.position_at(queue, target))
    elseif target > queue.last then
        refuse("BEYOND_END", target, queue.last)
    end
    return max(queue.trimmed, target)
end

-- The last position sent before a time.
function cursors.position_at(queue, at)
    local low, high = 0, queue.last
    while low < high do
        local middle = floor((low + high + 1) / 2)
        local created_at = cursors.sent_from(queue, middle)
        if created_at and created_at < at then
            low = middle
        else
            high = middle - 1
        end
    end
    return low
end

-- When the next message that was never held was sent: these are ordered by time, except for clock jumps.
function cursors.sent_from(queue, position)
    repeat
        local rows = log.read(queue, position, END, 10)
        for _, message in ipairs(rows) do
            if not message.v then
                return message.c
            end
            position = message.position + 1
        end
    until #rows == 0
end

-- Skipped positions of a lane with after < position <= upto, in order.
function cursors.skipped_in(queue, group, lane, after, upto)
    local found = {}
    for _, member in ipairs(call("ZRANGEBYSCORE", group.skips, "(" .. whole(after), whole(upto))) do
        local message = log.at(queue, tonumber(member))
        if message and log.lane_of(message) == lane.name then
            found[#found + 1] = tonumber(member)
        end
    end
    return found
end

function cursors.seek(key, now, given)
    local queue = queues.get(key, now)
    local found = groups.find(queue, given.group)
    cursors.check_place(queue, found)
    local position = cursors.place_of(queue, given.target, given.is_time)
    local group = found or groups.ensure(queue, given.group)
    if group.stream then
        windows.place(queue, group, position)
        return position
    end
    for _, lane in ipairs(log.lanes(queue)) do
        local before = cursors.find(queue, group, lane)
        if position < before then
            cursors.rewind(queue, group, lane, before, position)
        elseif position > before then
            cursors.skip_forward(queue, group, lane, before, position)
        end
        cursors.revive_skipped(queue, group, lane, max(position, before))
        cursors.move(group, lane, position, lane.trimmed + log.count(queue, lane.name, queue.trimmed, position))
    end
    return position
end

-- The outcome of each message of a range that has ended in the group, by position.
local function ended_between(queue, group, first, last)
    local states = {}
    for _, number in ipairs(audit.covering(queue, first, last)) do
        local entry = audit.at(queue, number)
        if entry and (entry.g == nil or entry.g == group.id) then
            for position = max(first, entry.f), min(last, entry.l) do
                states[position] = entry.s
            end
        end
    end
    for position, state in pairs(states) do
        if LIVE[state] then
            states[position] = nil
        end
    end
    return states
end

-- Move back: messages that have ended are ready again, and no longer count as ended.
function cursors.rewind(queue, group, lane, before, position)
    groups.recheck_expiry(queue, group, 0)
    for _, run in ipairs(log.runs(queue, lane.name, position, before)) do
        local first, last = run[1], run[2]
        for _, lease in ipairs(leases.between(group, first, last)) do
            for one = max(first, lease.first), min(last, lease.last) do
                cursors.skip(group, one)
            end
        end
        for _, one in ipairs(tracked.between(group, first, last)) do
            cursors.skip(group, one[1])
        end
        local states = ended_between(queue, group, first, last)
        local begin
        for one = first, last + 1 do
            local state = one <= last and states[one]
            if state then
                begin = begin or one
                outcomes.uncount(group, state, 1)
                letters.delete(queue, group, one)
            elseif begin then
                audit.record(queue, group, { event = "seek", state = "ready", first = begin, last = one - 1,
                        by = "system", attempt = 0 })
                begin = nil
            end
        end
    end
end

-- Messages ahead of the cursor that have ended are ready again too, such as those that were leased during an earlier
-- seek.
function cursors.revive_skipped(queue, group, lane, after)
    for _, position in ipairs(cursors.skipped_in(queue, group, lane, after, END)) do
        local state = ended_between(queue, group, position, position)[position]
        if state then
            outcomes.uncount(group, state, 1)
            letters.delete(queue, group, position)
            call("ZREM", group.skips, whole(position))
            audit.record(queue, group, {
                event = "seek", state = "ready", first = position, last = position, by = "system", attempt = 0,
            })
            groups.recheck_expiry(queue, group, 0)
        end
    end
end

-- Move forward: skipped messages are neither delivered nor ended, except those with an address or a batch in the
-- primary group, which are cancelled.
function cursors.skip_forward(queue, group, lane, before, position)
    for _, run in ipairs(log.runs(queue, lane.name, before, position)) do
        if lane.is_checked and groups.is_primary(queue, group) then
            for one = run[1], run[2] do
                local message = not cursors.is_skipped(group, one) and log.at(queue, one)
                if message and (message.a or message.b) then
                    outcomes.finish(queue, group, {
                        event = "seek", state = "cancelled", first = one, last = one, by = "system",
                        reason = REASONS.passed_by_seek, attempt = 0,
                    }, lane.name, true)
                end
            end
        end
        call("ZREMRANGEBYSCORE", group.skips, whole(run[1]), whole(run[2]))
    end
end
