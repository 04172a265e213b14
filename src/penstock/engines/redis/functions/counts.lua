-- Counts of a queue, from counters and small sets; and what a seek or a shorter retention would do.

local OUTCOMES = { "succeeded", "rejected", "failed", "lease_expired", "expired", "cancelled" }

function inspection.has_live(queue)
    if queue.held > 0 then
        return true
    end
    for _, group in ipairs(groups.every(queue)) do
        if #cursors.unread(queue, group) > 0 or call("EXISTS", group.leases, group.tracked) > 0 then
            return true
        end
    end
    return false
end

function inspection.group_counts(queue, group)
    local unread = 0
    for _, lane in ipairs(cursors.unread(queue, group)) do
        unread = unread + lane.sent - lane.passed
    end
    return {
        unread = unread, skipped = call("ZCARD", group.skips), consumers = call("HLEN", group.consumers),
        leased = tonumber(call("HGET", group.key, "leased") or 0) + call("ZCARD", group.tracked .. "l"),
        redo = call("ZCARD", group.tracked .. "r"), backing_off = call("ZCARD", group.tracked .. "d"),
        dead = call("HLEN", group.letters),
    }
end

-- Since when the longest-waiting message has been ready.
local function oldest_ready(queue, group)
    local oldest = END
    local first = cursors.first_unread(queue, group)
    local message = first and log.at(queue, first)
    if message then
        oldest = message.v or message.c
    end
    for _, one in ipairs(tracked.ready(group, 10000)) do
        oldest = min(oldest, tracked.find(group, one[1]).until_at)
    end
    return oldest < END and oldest
end

local function stream_counts(queue, group)
    local every, lag = 0, 0
    for _, lane in ipairs(log.lanes(queue)) do
        every = every + lane.sent - lane.trimmed
        lag = lag + (group.table == "messages" and log.count(queue, lane.name, max(group.stream, queue.trimmed), END)
                or 0)
    end
    if group.table ~= "messages" then
        lag = windows.count_ended(queue, group.stream)
    end
    return every, min(every, lag)
end

-- For each group: name, outcomes, undone outcomes, failed attempts, then the counts of a stream or of leases.
function inspection.stats(key, now)
    local queue = queues.find(key, now)
    local found = {}
    for _, group in ipairs(queue and groups.every(queue) or {}) do
        local row = { group.name }
        for _, state in ipairs(OUTCOMES) do
            row[#row + 1] = tonumber(call("HGET", group.key, state) or 0)
        end
        for _, state in ipairs(OUTCOMES) do
            row[#row + 1] = tonumber(call("HGET", group.key, "undone_" .. state) or 0)
        end
        row[#row + 1] = tonumber(call("HGET", group.key, "failed_attempts") or 0)
        row[#row + 1] = queue.held
        if group.stream then
            local every, lag = stream_counts(queue, group)
            row[#row + 1], row[#row + 2] = every, lag
        else
            local counts = inspection.group_counts(queue, group)
            local available = counts.unread - counts.skipped
            local oldest = (available > 0 or counts.redo > 0) and oldest_ready(queue, group)
            for _, value in ipairs({ available, counts.leased, counts.redo, counts.backing_off, counts.dead,
                    counts.consumers }) do
                row[#row + 1] = value
            end
            row[#row + 1] = oldest and max(0, now - oldest)
        end
        found[#found + 1] = row
    end
    return found
end

local function readable(queue)
    local count = 0
    for _, lane in ipairs(log.lanes(queue)) do
        count = count + lane.sent - lane.trimmed
    end
    return count
end

-- How many messages a new group could receive: those of the log that have not expired.
function inspection.count_unread(queue)
    return readable(queue) - call("ZCOUNT", queue.key .. ":ex", "-inf", whole(queue.now))
end

-- One number about the queue: count, unread, last position, or the last position before a time.
function inspection.number(key, now, given)
    local queue = queues.find(key, now)
    if not queue then
        return 0
    elseif given.what == "count" then
        return removal.count(queue)
    elseif given.what == "unread" then
        return inspection.count_unread(queue)
    elseif given.what == "position_at" then
        return cursors.position_at(queue, given.at)
    end
    return queue.last
end

-- For each group that receives, the position after which its unread messages lie.
function inspection.unread_after(key, now)
    local queue = queues.find(key, now)
    local found = {}
    for _, group in ipairs(queue and groups.leasing(queue) or {}) do
        local first = cursors.first_unread(queue, group)
        found[#found + 1] = group.name
        found[#found + 1] = first and first - 1 or queue.last
    end
    return found
end

-- -- previews -----------------------------------------------------------------------------------------------------

local function count_live(group, lane, after, upto)
    local count = 0
    for _, one in ipairs(tracked.every(group)) do
        count = count + (one[1] > after and one[1] <= upto and one[2].lane == lane.name and 1 or 0)
    end
    for _, lease in ipairs(leases.between(group, after + 1, upto)) do
        count = count + (lease.lane == lane.name and min(lease.last, upto) - max(lease.first, after + 1) + 1 or 0)
    end
    return count
end

function inspection.preview_seek(key, now, given)
    local queue = queues.get(key, now)
    local group = groups.find(queue, given.group)
    cursors.check_place(queue, group)
    local position = cursors.place_of(queue, given.target, given.is_time)
    local passed, again = 0, 0
    for _, lane in ipairs(log.lanes(queue)) do
        local reached = group and group.stream or cursors.find(queue, group, lane)
        local first, last = max(queue.trimmed, min(reached, position)), max(reached, position)
        local count = log.count(queue, lane.name, first, last)
        local is_leasing = group and not group.stream
        if position > reached then
            passed = passed + count - (is_leasing and #cursors.skipped_in(queue, group, lane, first, last) or 0)
        else
            again = again + count - (is_leasing and count_live(group, lane, first, last) or 0)
        end
        if is_leasing then
            again = again + #cursors.skipped_in(queue, group, lane, last, END) - count_live(group, lane, last, END)
        end
    end
    return { position, passed, again }
end

-- How many finished messages and dead letters would be removed earlier under another policy.
function inspection.preview_retention(key, now, given)
    local queue = queues.get(key, now)
    local policy, dead = cjson.decode(given.policy), 0
    local every = removal.count(queue) - queue.held
    local finished = {}
    for _, group in ipairs(retention.active(queue, policy)) do
        if group.stream then
            local total, lag = stream_counts(queue, group)
            finished[#finished + 1] = every - lag
        else
            local counts = inspection.group_counts(queue, group)
            local live = counts.unread - counts.skipped + counts.redo + counts.leased + counts.backing_off
            local kept = 0
            for _, member in ipairs(call("HKEYS", group.letters)) do
                kept = kept + (tonumber(member) > queue.trimmed and 1 or 0)
            end
            finished[#finished + 1] = every - live - kept
        end
    end
    if not policy.primary_group or #finished == 0 then
        finished[#finished + 1] = readable(queue) - inspection.count_unread(queue)
    end
    local before = now - microseconds(policy.dead_letter_seconds)
    for _, group in ipairs(groups.every(queue)) do
        dead = dead + call("ZCOUNT", group.letter_times, "-inf", whole(before))
    end
    return { max(0, min(unpack(finished))), dead }
end
