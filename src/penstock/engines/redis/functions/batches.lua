-- Batches: messages that are held until started, and end together. Members are elements of a sorted set, by the order
-- of their sends, so that a crash cannot corrupt a count. A batch is started and cancelled in pieces: a hash has the
-- batches that are not done, with the last member done; a sweep continues what a client left behind.
--
-- A batch belongs to a queue; on one server its members may be in other queues too. A message names its batch by b: q
-- queue, n number, m member, l name. In the hash of batches: l name, state, total, cancelled, finish and abort
-- (drafts), created_at, ended_at, queues (a set of names).

local ENDED = { finished = true, cancelled = true }

function batches.find(queue, number)
    local row = call("HGET", queue.key .. ":b", whole(number))
    local batch = row and unpacked(row) or nil
    if batch then
        batch.number = number
    end
    return batch
end

local function put(queue, batch)
    call("HSET", queue.key .. ":b", whole(batch.number), pack(batch))
end

local function numbers_of(queue, name)
    local row = call("HGET", queue.key .. ":bn", name)
    return row and unpacked(row) or {}
end

-- The newest batch of the name, or with `after` the first one after that number.
function batches.resolve(queue, name, after)
    local numbers = numbers_of(queue, name)
    if not after then
        return #numbers > 0 and batches.find(queue, numbers[#numbers]) or nil
    end
    for _, number in ipairs(numbers) do
        if number > after then
            return batches.find(queue, number)
        end
    end
end

function batches.get(queue, name, after)
    local batch = batches.resolve(queue, name, after)
    if not batch then
        refuse("NO_BATCH", name, call("HKEYS", queue.key .. ":bn"))
    end
    return batch
end

local function check_owner(queue, name)
    if not queue.policy.primary_group then
        refuse("BATCH_WITHOUT_OWNER", name, queue.name)
    end
end

local function create(queue, name, after)
    local number = max(tonumber(call("HGET", queue.key, "batch") or 0), after or 0) + 1
    call("HSET", queue.key, "batch", whole(number))
    local batch = { number = number, l = name, state = "open", total = 0, cancelled = 0, created_at = queue.now,
            queues = {} }
    local numbers = numbers_of(queue, name)
    numbers[#numbers + 1] = number
    call("HSET", queue.key .. ":bn", name, pack(numbers))
    put(queue, batch)
    return batch
end

local function check_takes(queue, batch, name)
    if batch and batch.state ~= "open" and batch.state ~= "running" then
        refuse("BATCH_CLOSED", name, queue.name, batch.state)
    end
end

-- The batch that a message is added to: the queue that owns it, its name and `after`. Nothing is written yet.
function batches.check_join(queue, options)
    local owner = queue
    if options.bq and options.bq ~= queue.name then
        if not queue.policy.primary_group then
            refuse("PART_WITHOUT_OWNER", options.b)
        end
        owner = queues.ensure(queues.other(queue, options.bq), queue.now)
    end
    check_owner(owner, options.b)
    check_takes(owner, batches.resolve(owner, options.b, options.after), options.b)
    return { owner = owner, name = options.b, after = options.after }
end

-- Add one member; return how a message names it.
function batches.join(queue, joined)
    local owner = joined.owner
    local batch = batches.resolve(owner, joined.name, joined.after) or create(owner, joined.name, joined.after)
    batch.total = batch.total + 1
    batch.queues[queue.name] = true
    put(owner, batch)
    local member = whole(queues.next(owner, "member"))
    call("ZADD", owner.key .. ":bm" .. whole(batch.number), member, member)
    if owner ~= queue then
        call("HSET", queue.key .. ":bv", owner.name .. "\n" .. whole(batch.number), 1)
    end
    return { q = owner.name, n = batch.number, m = member, l = batch.l }
end

local function owner_of(queue, ref)
    return ref.q == queue.name and queue or queues.find(queues.other(queue, ref.q), queue.now)
end

function batches.get_ref(queue, ref)
    local owner = owner_of(queue, ref)
    return owner and batches.find(owner, ref.n)
end

-- The name of a message's batch while the batch is there.
function batches.name_of(queue, ref)
    return batches.get_ref(queue, ref) and ref.l or nil
end

function batches.is_cancelled(queue, ref)
    local batch = ref and batches.get_ref(queue, ref)
    return batch ~= nil and batch ~= false and (batch.state == "cancelling" or batch.state == "cancelled")
end

-- Record where a member is: `p` and its position, or `h` and its number.
function batches.place(queue, ref, where)
    local owner = owner_of(queue, ref)
    if owner then
        call("HSET", owner.key .. ":bl" .. whole(ref.n), ref.m, where .. "\n" .. queue.name)
    end
end

-- A member has ended in the primary group.
function batches.leave(queue, ref, state)
    local owner = owner_of(queue, ref)
    if not owner or call("ZREM", owner.key .. ":bm" .. whole(ref.n), ref.m) == 0 then
        return
    end
    local batch = batches.find(owner, ref.n)
    if state == "cancelled" then
        batch.cancelled = batch.cancelled + 1
        put(owner, batch)
    end
    batches.end_if_done(owner, batch)
end

function batches.remaining(queue, number)
    return call("ZCARD", queue.key .. ":bm" .. whole(number))
end

-- End the batch with its last member and send the end or abort message, in the same call, so exactly once.
function batches.end_if_done(queue, batch)
    if batch.state == "open" or ENDED[batch.state] or batches.remaining(queue, batch.number) > 0 then
        return
    end
    local draft = batch.state == "running" and batch.finish or batch.state == "cancelling" and batch.abort or nil
    batch.state = batch.state == "running" and "finished" or "cancelled"
    batch.ended_at = queue.now
    put(queue, batch)
    if draft then
        local id = draft[3] and draft[3].i
        messages.put(queue, { draft }, { repeated = { id ~= nil and messages.exists(queue, id) or nil }, batches = {} })
    end
end

local function info(queue, batch)
    return { batch.number, batch.l, batch.state, batch.total, batches.remaining(queue, batch.number), batch.cancelled }
end

-- -- verbs --------------------------------------------------------------------------------------------------------

function batches.mark(key, now, given)
    local queue = queues.find(key, now)
    local batch = queue and batches.resolve(queue, given.name, nil)
    if not batch then
        return 0
    end
    return given.opens and ENDED[batch.state] and batch.number or batch.number - 1
end

function batches.open(key, now, given, args)
    local queue = queues.ensure(key, now)
    check_owner(queue, given.name)
    for place = 3, #args do
        messages.check_size(queue, args[place])
    end
    local after = given.after or batches.mark(key, now, { name = given.name, opens = true })
    local batch = batches.resolve(queue, given.name, after)
    check_takes(queue, batch, given.name)
    batch = batch or create(queue, given.name, after)
    local place = 3
    for _, kind in ipairs({ "finish", "abort" }) do
        if given[kind] then
            batch[kind] = { args[place], given[kind].type, given[kind].options }
            place = place + 1
        end
    end
    put(queue, batch)
    return info(queue, batch)
end

-- A piece of the members that have not ended, in the order of their sends: by queue the numbers of held ones and
-- positions, the names of the queues, and the last member, unless there are no more.
local function members(queue, batch, after)
    local number, found, names = whole(batch.number), {}, {}
    local piece = call("ZRANGEBYSCORE", queue.key .. ":bm" .. number, "(" .. after, "+inf", "LIMIT", 0, STEPS)
    for i, where in ipairs(#piece > 0 and call("HMGET", queue.key .. ":bl" .. number, unpack(piece)) or {}) do
        local kind, at, name = where:match("^(.)(%d+)\n(.*)$")
        if not found[name] then
            found[name] = { h = {}, p = {} }
            names[#names + 1] = name
        end
        table.insert(found[name][kind], tonumber(at))
    end
    table.sort(names)
    return found, names, #piece == STEPS and piece[#piece] or nil
end

-- Members that the group has not delivered: unread, or waiting for a retry.
local function unleased(queue, group, positions)
    local found = {}
    for _, position in ipairs(positions) do
        local row = tracked.find(group, position)
        local message = log.at(queue, position)
        local is_skipped = call("ZSCORE", group.skips, whole(position))
        if message and not is_skipped and (row and row.state ~= "leased"
                or not row and position > cursors.position(queue, group, log.lane_of(message))) then
            found[#found + 1] = { position, row }
        end
    end
    return found
end

function batches.cancel_tracked(queue, group, position, row, reason)
    tracked.remove(group, position)
    outcomes.finish(queue, group, {
        event = "batch_cancel", state = "cancelled", first = position, last = position,
        reason = reason or "batch " .. row.b.l .. " was cancelled", attempt = row.attempt,
    }, nil, true)
end

local function cancel_unleased(queue, group, found, reason)
    local is_primary = groups.is_primary(queue, group)
    for _, one in ipairs(found) do
        local position, row = one[1], one[2]
        if not row then
            cursors.skip(group, position)
            outcomes.finish(queue, group, {
                event = "batch_cancel", state = "cancelled", first = position, last = position, reason = reason,
                attempt = 0,
            }, nil, is_primary)
        elseif is_primary then
            batches.cancel_tracked(queue, group, position, row, reason)
        end
    end
end

-- Cancel the unleased ones of a piece of members. All groups are read before any is changed, because members leave the
-- batch when the primary group is changed.
local function cancel_members(queue, own, reason)
    promotion.withdraw(queue, own.h, { event = "batch_cancel", state = "cancelled", reason = reason })
    local affected = {}
    for _, group in ipairs(groups.leasing(queue)) do
        affected[#affected + 1] = { group, unleased(queue, group, own.p) }
    end
    for _, one in ipairs(affected) do
        cancel_unleased(queue, one[1], one[2], reason)
    end
end

-- Promote or cancel the next piece of members of a batch that was started or cancelled; return whether there are more.
local function continue_batch(queue, number)
    local after = call("HGET", queue.key .. ":bs", whole(number))
    local batch = after and batches.find(queue, number)
    if not batch then
        call("HDEL", queue.key .. ":bs", whole(number))
        return false
    end
    local found, names, last = members(queue, batch, after)
    for _, name in ipairs(names) do
        local own = queues.find(queues.other(queue, name), queue.now)
        if batch.state == "running" then
            promotion.promote_batch(own, found[name].h)
        else
            cancel_members(own, found[name], "batch " .. batch.l .. " was cancelled")
        end
    end
    if last then
        call("HSET", queue.key .. ":bs", whole(number), last)
        return true
    end
    call("HDEL", queue.key .. ":bs", whole(number))
    batches.end_if_done(queue, batches.find(queue, number))
    return false
end

-- A batch that is started or cancelled, and whether the caller is to continue it.
local function change(queue, batch, state)
    if state then
        batch.state = state
        put(queue, batch)
        call("HSET", queue.key .. ":bs", whole(batch.number), 0)
    end
    local has_more = continue_batch(queue, batch.number)
    return { info(queue, batches.find(queue, batch.number)), has_more and 1 or 0 }
end

function batches.start(key, now, given)
    local queue = queues.ensure(key, now)
    check_owner(queue, given.name)
    local batch = batches.resolve(queue, given.name, given.after) or create(queue, given.name, given.after)
    return change(queue, batch, batch.state == "open" and "running")
end

function batches.cancel(key, now, given)
    local queue = queues.get(key, now)
    local batch = batches.get(queue, given.name, given.after)
    return change(queue, batch, (batch.state == "open" or batch.state == "running") and "cancelling")
end

-- The next piece of a batch that is being started or cancelled; nothing where it was flushed meanwhile.
function batches.continue(key, now, given)
    local queue = queues.find(key, now)
    local batch = queue and batches.find(queue, given.number)
    return batch and change(queue, batch)
end

-- A piece of each batch that a client left behind; return whether there is more.
function batches.sweep(queue)
    local has_more = false
    for _, number in ipairs(call("HKEYS", queue.key .. ":bs")) do
        has_more = continue_batch(queue, tonumber(number)) or has_more
    end
    return has_more
end

function batches.describe(key, now, given)
    local queue = queues.get(key, now)
    return info(queue, batches.get(queue, given.name, given.after))
end

function batches.every(key, now)
    local queue = queues.find(key, now)
    local found = {}
    for _, number in ipairs(queue and call("HKEYS", queue.key .. ":b") or {}) do
        found[#found + 1] = info(queue, batches.find(queue, tonumber(number)))
    end
    table.sort(found, function(one, other)
        return one[1] > other[1]
    end)
    return found
end

function batches.cancelled(key, now, given)
    local queue = queues.get(key, now)
    local group = groups.get(queue, given.group)
    local found = {}
    for place, position in ipairs(given.positions) do
        local row = tracked.find(group, position)
        local message = not row and log.at(queue, position)
        found[place] = batches.is_cancelled(queue, row and row.b or message and message.b) and 1 or 0
    end
    return found
end

-- Every member, ended ones included: where it is, and its queue.
function batches.list(key, now, given)
    local queue = queues.get(key, now)
    local batch = batches.get(queue, given.name, given.number)
    local found = {}
    for _, where in pairs(pairs_of(call("HGETALL", queue.key .. ":bl" .. whole(batch.number)))) do
        local kind, number, name = where:match("^(.)(%d+)\n(.*)$")
        local own = queues.find(queues.other(queue, name), now)
        local message = own and (kind == "p" and log.at(own, tonumber(number)) or kind == "h" and held.find(own,
                tonumber(number)))
        if message then
            message.position = kind == "p" and tonumber(number) or nil
            found[#found + 1] = { kind == "p" and 0 or 1, tonumber(number), name, log.id_of(own, message), message.c }
        end
    end
    return found
end

-- Remove batches that ended before the retention and before the oldest remaining message was sent.
function batches.trim(queue, before, oldest)
    for _, number in ipairs(call("HKEYS", queue.key .. ":b")) do
        local batch = batches.find(queue, tonumber(number))
        if batch.ended_at and batch.ended_at <= before and batch.ended_at < oldest then
            batches.delete(queue, batch)
        end
    end
end

function batches.delete(queue, batch)
    call("HDEL", queue.key .. ":b", whole(batch.number))
    call("DEL", queue.key .. ":bm" .. whole(batch.number), queue.key .. ":bl" .. whole(batch.number))
    local left = {}
    for _, number in ipairs(numbers_of(queue, batch.l)) do
        if number ~= batch.number then
            left[#left + 1] = number
        end
    end
    if #left > 0 then
        call("HSET", queue.key .. ":bn", batch.l, pack(left))
    else
        call("HDEL", queue.key .. ":bn", batch.l)
    end
end

-- -- flushing -----------------------------------------------------------------------------------------------------

function batches.abandon(queue, batch)
    batch.state, batch.ended_at = "cancelled", queue.now
    put(queue, batch)
    local reason = "batch " .. batch.l .. " was flushed with queue " .. queue.name
    local after = 0
    repeat
        local found, names, last = members(queue, batch, after)
        for _, name in ipairs(names) do
            local own = queues.find(queues.other(queue, name), queue.now)
            if own and name ~= queue.name then
                cancel_members(own, found[name], reason)
            end
        end
        after = last
    until not after
end

-- The members that batches of other queues have in a queue.
function batches.visiting(queue)
    local found = {}
    for _, field in ipairs(call("HKEYS", queue.key .. ":bv")) do
        local name, number = field:match("^(.*)\n(%d+)$")
        local owner = queues.find(queues.other(queue, name), queue.now)
        local batch = owner and batches.find(owner, tonumber(number))
        if batch then
            local own = {}
            local where = pairs_of(call("HGETALL", owner.key .. ":bl" .. number))
            for _, member in ipairs(call("ZRANGE", owner.key .. ":bm" .. number, 0, -1)) do
                if where[member]:match("\n(.*)$") == queue.name then
                    own[#own + 1] = member
                end
            end
            found[#found + 1] = { owner = owner, number = tonumber(number), members = own }
        end
    end
    return found
end

-- Batches of other queues go on without their members in a flushed queue.
function batches.leave_all(queue, visiting)
    for _, visit in ipairs(visiting) do
        for _, member in ipairs(visit.members) do
            batches.leave(queue, { q = visit.owner.name, n = visit.number, m = member }, "cancelled")
            call("HDEL", visit.owner.key .. ":bl" .. whole(visit.number), member)
        end
    end
end

-- When the newest member that is held was sent.
function batches.newest_member(queue, batch)
    local number = whole(batch.number)
    for _, member in ipairs(call("ZREVRANGE", queue.key .. ":bm" .. number, 0, -1)) do
        local kind, at, name = call("HGET", queue.key .. ":bl" .. number, member):match("^(.)(%d+)\n(.*)$")
        local own = kind == "h" and queues.find(queues.other(queue, name), queue.now)
        if own then
            return held.find(own, tonumber(at)).c
        end
    end
    return 0
end
