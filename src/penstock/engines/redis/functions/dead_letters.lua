-- Dead letters: messages that ended in a group without success. dead -> ready by a redrive, deleted by a purge.
-- A hash by position (o outcome, r reason, n attempts, at, trace) and a sorted set by time of death.

function letters.insert(queue, group, step)
    for position = step.first, step.last do
        call("HSET", group.letters, whole(position), pack({ o = step.state, r = step.reason, n = step.attempt,
                at = queue.now }))
        call("ZADD", group.letter_times, whole(queue.now), padded(position))
    end
    call("PUBLISH", queue.prefix .. ":dead", cjson.encode({
        queue = shards.queue_name(queue), group = group.name, first = whole(shards.outer(queue, step.first)),
        last = whole(shards.outer(queue, step.last)),
                outcome = step.state,
    }))
end

function letters.find(group, position)
    local row = call("HGET", group.letters, whole(position))
    return row and unpacked(row) or nil
end

function letters.delete(queue, group, position)
    call("ZREM", group.letter_times, padded(position))
    return call("HDEL", group.letters, whole(position))
end

-- The group, or nil where there can be no dead letters yet; an unknown group is refused.
local function reader(queue, name)
    local group = queue and groups.find(queue, name)
    if not queue or (not group and name == queues.default_group(queue)) then
        return nil
    end
    return group or groups.get(queue, name)
end

-- Dead letters before an edge, newest first: rows of at most `limit` for each group.
function letters.list(key, now, given)
    local queue = queues.find(key, now)
    local found = {}
    if not queue then
        return { 0, found }
    end
    local every = given.group and { reader(queue, given.group) } or groups.every(queue)
    for _, group in ipairs(every) do
        local before = given.before or { END, END, "" }
        local edge = before[2] + (group.name < before[3] and 1 or 0)
        local taken, from, members = 0, 0, nil
        repeat
            members = call("ZREVRANGEBYSCORE", group.letter_times, whole(before[1]), "-inf", "WITHSCORES", "LIMIT",
                    from, 1000)
            for i = 1, #members, 2 do
                local position, at = tonumber(members[i]), tonumber(members[i + 1])
                local letter = letters.find(group, position)
                if taken < given.limit and (at < before[1] or position < edge) and (not given.outcome
                        or letter.o == given.outcome) then
                    local message = log.at(queue, position)
                    found[#found + 1] = {
                        group.name, position, letter.o, optional(letter.r), letter.n, at, message.c,
                                optional(message.i),
                        optional(message.t), optional(message.h), message.payload,
                    }
                    taken = taken + 1
                end
            end
            from = from + 1000
        until #members == 0 or taken >= given.limit
    end
    return { queue.salt, found }
end

-- A piece of the dead letters after the first `skip`: those of an outcome, the oldest first.
local function piece_of(group, given)
    local found = {}
    for _, member in ipairs(call("ZRANGE", group.letter_times, given.skip, given.skip + STEPS - 1)) do
        found[#found + 1] = tonumber(member)
    end
    return found, #found == STEPS
end

local function located(queue, ids)
    local found = {}
    for _, id in ipairs(ids) do
        found[#found + 1] = log.locate(queue, id)
    end
    return found, false
end

-- Do something with the dead letters of given ids, or with a piece of those of an outcome: how many it was done with,
-- how many letters stay, and whether there are more.
local function with_letters(key, now, given, change)
    local queue = shards.find(key, now)
    local group = queue and reader(queue, given.group)
    if not group then
        return { 0, 0, 0 }
    end
    local count, stay, positions, has_more = 0, 0, nil, nil
    if given.ids then
        positions, has_more = located(queue, given.ids)
    else
        positions, has_more = piece_of(group, given)
    end
    for _, position in ipairs(positions) do
        local letter = count < given.limit and letters.find(group, position)
        if letter and (not given.outcome or letter.o == given.outcome) and change(queue, group, position, letter) then
            count = count + 1
        else
            stay = stay + 1
        end
    end
    return { count, stay, has_more and 1 or 0 }
end

function letters.purge(key, now, given)
    return with_letters(key, now, given, letters.delete)
end

-- Give the message its address back, unless another live message has it.
local function retake(queue, group, message)
    if not message.a or not groups.is_primary(queue, group) then
        return true
    end
    local row = addresses.find(queue, message.a)
    local id = log.id_of(queue, message)
    if row and not row.e and row.i ~= id then
        return false
    end
    addresses.take(queue, message.a, id, message.position)
    return true
end

local function redrive_one(queue, group, position, letter)
    local message = log.at(queue, position)
    if not message or not retake(queue, group, message) then
        return false
    end
    letters.delete(queue, group, position)
    outcomes.uncount(group, letter.o, 1)
    audit.record(queue, group, {
        event = "redrive", state = "ready", first = position, last = position, by = "system",
        reason = filled(REASONS.redriven, letter.o), attempt = letter.n,
    })
    -- Its times start from now, as if it had been sent again; it is no longer a member of its batch.
    local moved = queue.now - message.c
    tracked.put(group, position, {
        lane = log.lane_of(message), p = message.p or 0, s = message.s or 0, state = "ready", attempt = 0,
        until_at = queue.now, x = message.x and message.x + moved, d = message.d and message.d + moved, token = 0,
    })
    return true
end

function letters.redrive(key, now, given)
    return with_letters(key, now, given, redrive_one)
end

-- -- stack traces -------------------------------------------------------------------------------------------------

function letters.keep_traces(key, now, given)
    local queue = queues.get(key, now)
    local group = groups.get(queue, given.group)
    for _, one in ipairs(given.traces) do
        local position, trace = one[1], one[2]
        local row, letter = tracked.find(group, position), letters.find(group, position)
        if row then
            row.trace = trace
            call("HSET", group.tracked, whole(position), pack(row))
        end
        if letter then
            letter.trace = trace
            call("HSET", group.letters, whole(position), pack(letter))
        end
    end
    return 1
end

function letters.error_trace(key, now, given)
    local queue = queues.get(key, now)
    local position = inspection.position(queue, given.id)
    local group = groups.find(queue, given.group)
    if not position or not group then
        return false
    end
    local row, letter = tracked.find(group, position), letters.find(group, position)
    return optional(row and row.trace or letter and letter.trace or nil)
end
