-- Notices: what one queue tells another about the members of a batch. Queues may be on different nodes, so a notice is
-- kept with the queue that posts it, in the same call as its cause, until the client that made the call, or a sweep, has
-- delivered it. Delivering it twice is the same as once. On a single server it is delivered in the call itself.

local KINDS = {}

function notices.post(queue, name, kind, given)
    if not in_cluster then
        local target = queues.find(queues.other(queue, name), queue.now)
        if target then
            KINDS[kind](target, queue.name, given)
        end
        return
    end
    local number = queues.next(queue, "notice")
    local notice = pack({ kind = kind, from = queue.name, given = given })
    call("HSET", queue.key .. ":no", whole(number), pack({ to = name, notice = notice }))
    posted[#posted + 1] = { number, name, notice }
end

local function ref_of(from, given)
    return { q = from, n = given.n, l = given.l }
end

-- To the owner of a batch: a member has ended.
function KINDS.left(queue, _, given)
    batches.end_member(queue, given.n, given.m, given.state)
end

-- To the other queues of a batch, from its owner.
function KINDS.running(queue, from, given)
    batches.changed(queue, ref_of(from, given), "running")
end

function KINDS.cancelling(queue, from, given)
    batches.changed(queue, ref_of(from, given), "cancelling", given.reason)
end

function KINDS.gone(queue, from, given)
    batches.gone(queue, ref_of(from, given))
end

-- To another shard of the queue: the end message of a batch, whose key belongs there.
function KINDS.ended(queue, _, given)
    batches.send_end(queue, given.draft)
end

-- To the owner of a batch: a send has ended, with these members or without them.
function KINDS.joined(queue, from, given)
    joins.close(queue, from, given)
end

-- -- verbs --------------------------------------------------------------------------------------------------------

-- The notices are arguments.
function notices.deliver(key, now, _, args)
    local queue = queues.find(key, now)
    for place = 3, queue and #args or 0 do
        local notice = unpacked(args[place])
        KINDS[notice.kind](queue, notice.from, notice.given)
    end
    return 1
end

function notices.delivered(key, _, given)
    for _, number in ipairs(given.numbers) do
        call("HDEL", key .. ":no", whole(number))
    end
    return #given.numbers
end

-- Notices that were posted and perhaps not delivered, in their order.
function notices.pending(key)
    local found = {}
    for number, row in pairs(pairs_of(call("HGETALL", key .. ":no"))) do
        local one = unpacked(row)
        found[#found + 1] = { tonumber(number), one.to, one.notice }
    end
    sort_by(found, 1)
    return found
end
