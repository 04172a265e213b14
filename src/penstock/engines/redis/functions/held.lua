-- Held messages: delayed, or in a batch that has not started. They are not in the log; they are appended when they
-- become ready, so that no cursor can have passed them and all groups read them in the same order.
--
-- Hashes by number: the stored message (with `o`: waits for its batch) and its payload; sorted sets by due time, expiry
-- and deadline.

function held.find(queue, number)
    local row = call("HGET", queue.key .. ":h", whole(number))
    local message = row and unpacked(row) or nil
    if message then
        message.number = number
    end
    return message
end

function held.payload(queue, number)
    return call("HGET", queue.key .. ":hp", whole(number))
end

function held.add(queue, message, payload)
    local number = queues.next(queue, "held_number")
    call("HSET", queue.key .. ":h", whole(number), pack(message))
    call("HSET", queue.key .. ":hp", whole(number), payload)
    call("HINCRBY", queue.key, "held", 1)
    held.index(queue, number, message)
    if message.x then
        call("ZADD", queue.key .. ":hx", whole(message.x), padded(number))
    end
    if message.d then
        call("ZADD", queue.key .. ":hl", whole(message.d), padded(number))
    end
    log.identify(queue, message.i, "h" .. whole(number))
    return number
end

function held.index(queue, number, message)
    if not message.o then
        call("ZADD", queue.key .. ":hd", whole(message.v), padded(number))
    end
end

local function take(queue, number)
    local message = held.find(queue, number)
    local payload = held.payload(queue, number)
    call("HDEL", queue.key .. ":h", whole(number))
    call("HDEL", queue.key .. ":hp", whole(number))
    for _, set in ipairs({ ":hd", ":hx", ":hl" }) do
        call("ZREM", queue.key .. set, padded(number))
    end
    call("HINCRBY", queue.key, "held", -1)
    message.number = nil
    return message, payload
end

-- A UUID of version 7 from the random bits of the call.
function held.new_id(queue, shard)
    local milliseconds = floor(queue.now / 1000)
    id_bits = (id_bits + 1) % 281474976710656
    local tail = queue.slots > 0 and id_bits % 274877906944 * MAX_SHARDS + (shard or queue.shard) or id_bits
    local high = floor(chance * 67108864) % 67108864
    return format("%08x-%04x-7%03x-%04x-%012x", floor(milliseconds / 65536) % 4294967296, milliseconds % 65536,
        floor(high / 16384), 32768 + high % 16384, tail)
end

-- Move held messages to the end of the log, in their order; return their positions.
local function append(queue, numbers, is_withdrawn)
    local positions, items, lane = {}, {}, nil
    local function flush()
        if #items == 0 then
            return
        end
        local first = log.append(queue, lane, items)
        for i, item in ipairs(items) do
            local message, position = item[1], first + i - 1
            log.identify(queue, message.i, "p" .. whole(position))
            if message.a then
                local row = addresses.find(queue, message.a)
                if row and row.i == message.i then
                    row.o = position
                    addresses.put(queue, message.a, row)
                end
            end
            if message.b then
                batches.place(queue, message.b, "p" .. whole(position))
            end
            positions[#positions + 1] = position
        end
        items = {}
    end
    for _, number in ipairs(numbers) do
        local message, payload = take(queue, number)
        message.o = nil
        message.w = is_withdrawn or nil
        local own = log.lane_of(message)
        if own ~= lane then
            flush()
            lane = own
        end
        items[#items + 1] = { message, payload }
    end
    flush()
    return positions
end

local function numbers_upto(queue, set, limit)
    local found = {}
    local due = call("ZRANGEBYSCORE", queue.key .. set, "-inf", whole(queue.now), "LIMIT", 0, limit)
    for _, member in ipairs(due) do
        found[#found + 1] = tonumber(member)
    end
    return found
end
held.upto = numbers_upto

local function release(queue, numbers, event)
    for _, position in ipairs(append(queue, numbers, false)) do
        audit.record(queue, nil, { event = event, state = "ready", first = position, last = position, by = "system",
                attempt = 0 })
    end
end

-- Append the queue's held messages that are due, at most `limit` of them.
function promotion.promote(queue, limit)
    local due = numbers_upto(queue, ":hd", limit)
    if #due > 0 then
        release(queue, due, "due")
    end
    return #due
end

-- Append the due members of a started batch; members with a later delay stay held.
function promotion.promote_batch(queue, numbers)
    local due = {}
    for _, number in ipairs(numbers) do
        local message = held.find(queue, number)
        if message and message.o then
            message.o, message.number = nil, nil
            if message.v <= queue.now then
                message.v = max(queue.now, message.c + 1)
            end
            call("HSET", queue.key .. ":h", whole(number), pack(message))
            if message.v > max(queue.now, message.c + 1) then
                held.index(queue, number, message)
            else
                due[#due + 1] = number
            end
        end
    end
    release(queue, due, "batch_start")
end

-- held -> an outcome in every group: the message is appended to a lane that nobody reads, which keeps its audit
-- readable.
function promotion.withdraw(queue, numbers, step)
    for _, position in ipairs(append(queue, numbers, true)) do
        outcomes.finish_unread(queue, {
            event = step.event, state = step.state, first = position, last = position, by = step.by,
                    reason = step.reason,
            attempt = 0,
        })
    end
end

-- Make due retries of the group ready, at most `limit` of them.
function promotion.make_ready(queue, group, limit)
    local due = tracked.upto(group, "d", queue.now, limit)
    for _, position in ipairs(due) do
        promotion.ready_now(queue, group, position, tracked.find(group, position))
    end
    return #due
end

function promotion.ready_now(queue, group, position, row)
    row.state = "ready"
    tracked.put(group, position, row)
    audit.record(queue, group, {
        event = "due", state = "ready", first = position, last = position, by = "system", attempt = row.attempt,
    })
end
