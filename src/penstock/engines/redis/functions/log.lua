-- The log: a stream of the queue's messages by position, and the lanes they belong to.
--
-- A lane is a priority and a shard. Its runs, the ranges of consecutive positions that belong to it, are a sorted set
-- (member: first position, score: last position). Messages that ended while held are in the lane `w`, which no group
-- reads. A stored message is a map of what differs from a plain one: c created_at, i id, t content type, h headers,
-- x expires_at, d deadline_at, a address, k key, b batch, y created_by, v available_at, p priority, s shard.

local WITHDRAWN = "w"

function log.lane_name(priority, shard)
    return whole(priority) .. ":" .. whole(shard)
end

-- The lanes that groups read, best priority first.
function log.lanes(queue)
    if queue.lanes then
        return queue.lanes
    end
    local row = pairs_of(call("HGETALL", queue.key .. ":ln"))
    local found = {}
    for field, last in pairs(row) do
        local priority, shard = field:match("^(%d+):(%d+)$")
        if priority then
            found[#found + 1] = {
                name = field, priority = tonumber(priority), shard = tonumber(shard), last = tonumber(last),
                sent = tonumber(row["n" .. field] or 0), trimmed = tonumber(row["t" .. field] or 0),
                is_checked = row["c" .. field] ~= nil,
            }
        end
    end
    sort_by(found, "priority", "shard")
    queue.lanes = found
    return found
end

function log.lane(queue, name)
    for _, lane in ipairs(log.lanes(queue)) do
        if lane.name == name then
            return lane
        end
    end
end

local function needs_checks(message)
    return message.x or message.d or message.b or message.a
end

-- Append messages ({stored map, payload}) to a lane at consecutive positions; return the first.
function log.append(queue, lane, items)
    local first = queue.last + 1
    local stream = queue.key .. ":log"
    local checked = false
    local packed_before, packed
    for i, item in ipairs(items) do
        if item[1] ~= packed_before then
            packed_before, packed = item[1], pack(item[1])
            checked = checked or needs_checks(item[1])
        end
        call("XADD", stream, whole(first + i - 1) .. "-0", "m", packed, "p", item[2])
        if lane ~= WITHDRAWN then
            log.index_times(queue, first + i - 1, item[1])
        end
    end
    local last = first + #items - 1
    queue.last = last
    call("HSET", queue.key, "last", whole(last))
    log.add_run(queue, lane, first, last)
    local lanes = queue.key .. ":ln"
    if lane ~= WITHDRAWN then
        call("HSET", lanes, lane, whole(last))
        if checked then
            call("HSET", lanes, "c" .. lane, 1)
        end
    end
    call("HINCRBY", lanes, "n" .. lane, #items)
    queue.lanes = nil
    return first
end

-- Sorted sets of positions by expiry and by deadline.
function log.index_times(queue, position, message)
    if message.x then
        call("ZADD", queue.key .. ":ex", whole(message.x), whole(position))
    end
    if message.d then
        call("ZADD", queue.key .. ":dl", whole(message.d), whole(position))
    end
end

function log.drop_times(queue, position, message)
    if message.x then
        call("ZREM", queue.key .. ":ex", whole(position))
    end
    if message.d then
        call("ZREM", queue.key .. ":dl", whole(position))
    end
end

function log.add_run(queue, lane, first, last)
    local runs = queue.key .. ":r" .. lane
    local newest = call("ZREVRANGE", runs, 0, 0, "WITHSCORES")
    local member = newest[1] and tonumber(newest[2]) == first - 1 and newest[1] or whole(first)
    call("ZADD", runs, whole(last), member)
end

-- The ranges of a lane with after < position <= upto, at most `limit` of them.
function log.runs(queue, lane, after, upto, limit)
    local found = {}
    if upto <= after then
        return found
    end
    local from = after
    repeat
        local rows = call("ZRANGEBYSCORE", queue.key .. ":r" .. lane, "(" .. whole(from), "+inf", "WITHSCORES", "LIMIT", 0,
            min(limit or AT_A_TIME, AT_A_TIME))
        for i = 1, #rows, 2 do
            local first = max(tonumber(rows[i]), after + 1)
            if first > upto or #found == limit then
                return found
            end
            from = tonumber(rows[i + 1])
            found[#found + 1] = { first, min(from, upto) }
        end
    until #rows == 0
    return found
end

function log.count(queue, lane, after, upto)
    local count = 0
    for _, run in ipairs(log.runs(queue, lane, after, upto)) do
        count = count + run[2] - run[1] + 1
    end
    return count
end

-- The first position of a lane after another one.
function log.first_after(queue, lane, after)
    local run = log.runs(queue, lane, after, END, 1)[1]
    return run and run[1]
end

local function message_of(entry)
    local fields = entry[2]
    local message = unpacked(fields[2])
    message.position, message.payload = tonumber(entry[1]:match("^%d+")), fields[4]
    return message
end

-- Messages of the log by position, whatever their lane.
function log.read(queue, first, last, count)
    local rows
    if count then
        rows = call("XRANGE", queue.key .. ":log", whole(first) .. "-0", whole(last) .. "-0", "COUNT", count)
    else
        rows = call("XRANGE", queue.key .. ":log", whole(first) .. "-0", whole(last) .. "-0")
    end
    for i = 1, #rows do
        rows[i] = message_of(rows[i])
    end
    return rows
end

function log.read_backwards(queue, last, first, count)
    local rows = call("XREVRANGE", queue.key .. ":log", whole(last) .. "-0", whole(first) .. "-0", "COUNT", count)
    for i = 1, #rows do
        rows[i] = message_of(rows[i])
    end
    return rows
end

-- One message, also one that only a dead letter or a retry keeps.
function log.at(queue, position)
    local rows = call("XRANGE", queue.key .. ":log", whole(position) .. "-0", whole(position) .. "-0")
    if rows[1] then
        return message_of(rows[1])
    end
    local kept = call("HMGET", queue.key .. ":kp", "m" .. whole(position), "p" .. whole(position))
    if not kept[1] then
        return nil
    end
    local message = unpacked(kept[1])
    message.position, message.payload = position, kept[2]
    return message
end

function log.lane_of(message)
    return message.w and WITHDRAWN or log.lane_name(message.p or 0, message.s or 0)
end

-- -- ids ----------------------------------------------------------------------------------------------------------

function log.id_of(queue, message)
    return message.i or queues.made_id(queue, message.c, message.position)
end

function log.identify(queue, id, place)
    call("HSET", queue.key .. ":id", id, place)
end

-- Where a message is: its position, or nil and its number among the held ones.
function log.locate(queue, id)
    local position = shards.inner(queue, tonumber(id:sub(-12), 16))
    if position and position <= queue.last then
        local message = log.at(queue, position)
        if message and not message.i and log.id_of(queue, message) == id then
            return position, nil
        end
    end
    local place = call("HGET", queue.key .. ":id", id)
    if not place then
        return nil, nil
    end
    local number = tonumber(place:sub(2))
    if place:sub(1, 1) == "p" then
        return number, nil
    end
    return nil, number
end
