-- live -> an outcome: how a message ends in a group, and what follows from it.

-- End messages of one group. Without `letter` there is no dead letter, for a group that only skipped them.
function outcomes.finish(queue, group, step, lane, letter)
    audit.record(queue, group, step)
    outcomes.account(queue, group, step, lane, letter)
end

-- End a held message in every group; the dead letter belongs to the primary group.
function outcomes.finish_unread(queue, step)
    audit.record(queue, nil, step)
    call("ZADD", queue.key .. ":wz", whole(step.first), whole(step.first) .. ":" .. step.state)
    for _, group in ipairs(groups.leasing(queue)) do
        outcomes.account(queue, group, step, nil, groups.is_primary(queue, group))
    end
end

-- Count the outcome and insert dead letters; in the primary group free addresses and end batches with their last
-- member. A lane without checks has no message with an address or a batch.
function outcomes.account(queue, group, step, lane, letter)
    call("HINCRBY", group.key, step.state, step.last - step.first + 1)
    if letter and step.state ~= "succeeded" then
        letters.insert(queue, group, step)
    end
    if not groups.is_primary(queue, group) then
        return
    end
    local known = lane and log.lane(queue, lane)
    if known and not known.is_checked then
        return
    end
    for position = step.first, step.last do
        local message = log.at(queue, position)
        if message and message.a then
            addresses.free(queue, message.a, position, step)
        end
        if message and message.b then
            batches.leave(queue, message.b, step.state)
        end
    end
end

-- Undo the outcome of messages that are live again.
function outcomes.uncount(group, state, count)
    call("HINCRBY", group.key, state, -count)
    call("HINCRBY", group.key, "undone_" .. state, count)
end

-- -- addresses ----------------------------------------------------------------------------------------------------
-- A hash by address: i id, o position, h held number, e outcome, r reason, c code.

function addresses.find(queue, address)
    local row = call("HGET", queue.key .. ":ad", address)
    return row and unpacked(row) or nil
end

function addresses.put(queue, address, row)
    call("HSET", queue.key .. ":ad", address, pack(row))
end

function addresses.take(queue, address, id, position)
    addresses.put(queue, address, { i = id, o = position })
end

function addresses.free(queue, address, position, step)
    local row = addresses.find(queue, address)
    if row and row.o == position and not row.e then
        row.e, row.r, row.c = step.state, step.reason, step.code
        addresses.put(queue, address, row)
    end
end

-- The live message of an address; one that has expired does not count, even before a sweep records it.
function addresses.live(queue, address)
    local row = addresses.find(queue, address)
    if not row or row.e then
        return nil
    end
    local expires_at
    if row.o then
        local primary = queue.policy.primary_group and groups.find(queue, queue.policy.primary_group)
        local retry = primary and tracked.find(primary, row.o)
        local message = not retry and log.at(queue, row.o)
        expires_at = retry and retry.x or message and message.x
    else
        local _, number = log.locate(queue, row.i)
        local message = number and held.find(queue, number)
        expires_at = message and message.x
    end
    if expires_at and expires_at <= queue.now then
        return nil
    end
    return row.i
end

function addresses.state(key, now, given)
    local queue = queues.find(key, now)
    local row = queue and addresses.find(queue, given.address)
    if not row then
        return false
    end
    local has_code = row.e == "failed" or row.e == "rejected"
    return { row.i, optional(row.e), optional(row.r), optional(has_code and row.c or nil) }
end

function addresses.is_live(key, now, given)
    local queue = queues.find(key, now)
    return queue and addresses.live(queue, given.address) and 1 or 0
end

-- How a message ended in the primary group.
function addresses.ended(key, now, given)
    local queue = queues.get(key, now)
    local position = inspection.position(queue, given.id)
    local group = queue.policy.primary_group and groups.find(queue, queue.policy.primary_group)
    local last = position and group and audit.last(queue, group, position)
    if not last or LIVE[last.s] then
        return false
    end
    local has_code = last.s == "failed" or last.s == "rejected"
    return { given.id, last.s, optional(last.r), optional(has_code and last.c or nil) }
end
