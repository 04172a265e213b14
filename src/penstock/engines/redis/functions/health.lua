-- Health: stalled work of a queue, as `engines.health` reports it.

local MINUTE, HOUR, DAY = 60 * 1000000, 3600 * 1000000, 86400 * 1000000
-- Entries that are searched for idle groups that lost messages.
local RECENT = 1000

local function stuck_leases(queue, found)
    for _, group in ipairs(groups.every(queue)) do
        local count = call("ZCOUNT", group.lease_ends, "-inf", whole(queue.now - MINUTE))
        if count > 0 then
            found[#found + 1] = { group.name, count }
        end
    end
    return found
end

local function silent_groups(queue, found)
    for _, group in ipairs(groups.every(queue)) do
        if group.used_at < queue.now - HOUR and not group.stream and #cursors.unread(queue, group) > 0 then
            found[#found + 1] = group.name
        end
    end
    return found
end

local function carried_groups(queue, found)
    for _, number in ipairs(call("ZREVRANGEBYSCORE", queue.key .. ":as", 0, 0, "LIMIT", 0, RECENT)) do
        local entry = audit.at(queue, tonumber(number))
        if entry and entry.e == "seek" and entry.a > queue.now - 7 * DAY then
            found[#found + 1] = entry.r
        end
    end
    return found
end

-- Open batches that nobody started for a day; and those opened by mistake after one of the name had ended: name, number
-- of members, and when the newest of them was sent.
local function idle_batches(queue, open, stranded)
    local ended = {}
    local every = {}
    for _, number in ipairs(call("HKEYS", queue.key .. ":b")) do
        every[#every + 1] = batches.find(queue, tonumber(number))
    end
    sort_by(every, "number")
    for _, batch in ipairs(every) do
        local before = ended[batch.l]
        if batch.state == "open" then
            if batch.created_at < queue.now - DAY then
                open[#open + 1] = batch.l
            end
            local count = batches.remaining(queue, batch.number)
            if before and before <= batch.created_at and not batch.finish and not batch.abort and count > 0 then
                stranded[#stranded + 1] = { batch.l, count, batch.joined_at }
            end
        elseif batch.ended_at then
            ended[batch.l] = batch.ended_at
        end
    end
end

function health.examine(key, now)
    local queue = queues.find(key, now)
    if not queue then
        return {}
    end
    local late = call("ZCOUNT", queue.key .. ":hd", "-inf", whole(now - MINUTE))
    local dead, open, stranded = 0, {}, {}
    for _, group in ipairs(groups.every(queue)) do
        dead = dead + call("HLEN", group.letters)
    end
    idle_batches(queue, open, stranded)
    return { stuck_leases(queue, {}), late, silent_groups(queue, {}), carried_groups(queue, {}), dead, open, stranded }
end
