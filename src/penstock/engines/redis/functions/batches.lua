-- Batches: messages that are held until started, and end together. Members are elements of a sorted set, by the order
-- of their sends, so that a crash cannot corrupt a count. A batch is started and cancelled in pieces: a hash has the
-- batches that are not done, with the last member done; a sweep continues what a client left behind.
--
-- A batch belongs to a queue, its owner; members may be in other queues too. A message names its batch by b: q queue,
-- n number, m member, l name. In the hash of batches: l name, state, total, cancelled, finish and abort (drafts),
-- created_at, joined_at, ended_at, queues (a set of names). The owner has the set of all members that have not ended.
-- Each queue knows where its own members are; one that is not the owner also has a copy of the batch: l name, state,
-- reason of a cancellation, gone. Queues tell each other of changes by notices (notices.lua), because they may be on
-- different nodes.

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
        refuse("BATCH_WITHOUT_OWNER", name, shards.queue_name(queue))
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
        refuse("BATCH_CLOSED", name, shards.queue_name(queue), batch.state)
    end
end

-- The batch that a message is added to: the queue that owns it, its name and `after`. Nothing is written yet.
function batches.check_join(queue, options)
    local owner = queue
    if options.bq and options.bq ~= queue.name then
        batches.check_visit(queue, options)
        owner = queues.ensure(queues.other(queue, options.bq), queue.now)
    end
    batches.check_takes(owner, options.b, options.after)
    return { owner = owner, name = options.b, after = options.after }
end

function batches.check_visit(queue, options)
    if not queue.policy.primary_group then
        refuse("PART_WITHOUT_OWNER", options.b)
    end
end

function batches.check_takes(owner, name, after)
    check_owner(owner, name)
    check_takes(owner, batches.resolve(owner, name, after), name)
end

-- Add one member; return how a message names it.
function batches.join(queue, joined)
    local owner = joined.owner
    local batch, members = batches.add_members(owner, queue.name, joined.name, joined.after, 1)
    local ref = { q = owner.name, n = batch.number, m = members[1], l = batch.l }
    batches.enter(queue, ref, batch.state)
    return ref
end

-- In the owner: new members that are in a queue.
function batches.add_members(owner, name, batch_name, after, count)
    local batch = batches.resolve(owner, batch_name, after) or create(owner, batch_name, after)
    batch.total = batch.total + count
    batch.joined_at = owner.now
    batch.queues[name] = true
    put(owner, batch)
    local members = {}
    for place = 1, count do
        members[place] = whole(queues.next(owner, "member"))
        call("ZADD", owner.key .. ":bm" .. whole(batch.number), members[place], members[place])
    end
    return batch, members
end

-- In the owner: members whose messages were not sent after all.
function batches.drop_members(owner, number, members)
    local batch = batches.find(owner, number)
    if batch then
        for _, member in ipairs(members) do
            batch.total = batch.total - call("ZREM", owner.key .. ":bm" .. whole(number), member)
        end
        put(owner, batch)
        batches.end_if_done(owner, batch)
    end
end

-- -- in the queue of a member -------------------------------------------------------------------------------------

local ORDER = { open = 1, running = 2, finished = 2, cancelling = 3, cancelled = 3 }

-- The field of a batch of another queue among its copies.
local function copy_field(ref)
    return ref.q .. "\n" .. whole(ref.n)
end

local function copy_of(queue, ref)
    local row = call("HGET", queue.key .. ":bv", copy_field(ref))
    return row and unpacked(row) or nil
end

-- Keys that a queue has for a batch: its members that have not ended, and where its own members are.
local function own_key(queue, ref, suffix)
    local key = queue.key .. suffix .. whole(ref.n)
    return ref.q == queue.name and key or key .. ":" .. ref.q
end

local function members_key(queue, ref)
    return own_key(queue, ref, ":bm")
end

local function places_key(queue, ref)
    return own_key(queue, ref, ":bl")
end

local function put_copy(queue, ref, copy)
    call("HSET", queue.key .. ":bv", copy_field(ref), pack(copy))
end

-- Copy the state of a batch, unless a later one is known; return whether it is news.
local function learn(queue, ref, state, reason)
    local known = copy_of(queue, ref)
    if known and ORDER[known.state] >= ORDER[state] then
        return false
    end
    put_copy(queue, ref, { l = ref.l, state = state, reason = reason })
    return true
end

function batches.enter(queue, ref, state)
    if ref.q ~= queue.name then
        learn(queue, ref, state)
        call("ZADD", members_key(queue, ref), ref.m, ref.m)
    end
end

function batches.get_ref(queue, ref)
    if ref.q == queue.name then
        return batches.find(queue, ref.n)
    end
    return copy_of(queue, ref)
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
    call("HSET", places_key(queue, ref), ref.m, where)
end

-- A member has ended in the primary group.
function batches.leave(queue, ref, state)
    if ref.q == queue.name then
        batches.end_member(queue, ref.n, ref.m, state)
    elseif call("ZREM", members_key(queue, ref), ref.m) == 1 then
        notices.post(queue, ref.q, "left", { n = ref.n, m = ref.m, state = state })
    end
end

-- In the owner.
function batches.end_member(owner, number, member, state)
    local batch = batches.find(owner, number)
    if not batch or call("ZREM", owner.key .. ":bm" .. whole(number), member) == 0 then
        return
    end
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
    local shard = draft and draft[4]
    if draft and shard and shard ~= queue.name then
        draft[3] = draft[3] or {}
        draft[3].i = draft[3].i or held.new_id(queue, tonumber(shard:match("^%d+")))
        notices.post(queue, shard, "ended", { draft = draft })
    elseif draft then
        batches.send_end(queue, draft)
    end
end

-- Send an end or abort message. One with an id is not sent again.
function batches.send_end(queue, draft)
    local id = draft[3] and draft[3].i
    messages.put(queue, { draft }, { repeated = { id ~= nil and messages.exists(queue, id) or nil }, batches = {} })
end

local function info(queue, batch)
    return { batch.number, batch.l, batch.state, batch.total, batches.remaining(queue, batch.number), batch.cancelled,
            batch.created_at }
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
            batch[kind] = { args[place], given[kind].type or false, given[kind].options or {}, given[kind].shard }
            place = place + 1
        end
    end
    put(queue, batch)
    return info(queue, batch)
end

-- A piece of the queue's own members that have not ended, in the order of their sends: the numbers of held ones and
-- positions, and the last member, unless there are no more.
local function members(queue, ref, after)
    local found = { h = {}, p = {} }
    local piece = call("ZRANGEBYSCORE", members_key(queue, ref), "(" .. after, "+inf", "LIMIT", 0, STEPS)
    for _, where in ipairs(#piece > 0 and call("HMGET", places_key(queue, ref), unpack(piece)) or {}) do
        if where then
            table.insert(found[where:sub(1, 1)], tonumber(where:sub(2)))
        end
    end
    return found, #piece == STEPS and piece[#piece] or nil
end

local function ref_of(queue, batch)
    return { q = queue.name, n = batch.number, l = batch.l }
end

-- Tell the other queues of a batch about it; return their names.
local function tell(queue, batch, kind, reason)
    local others = {}
    for name in pairs(batch.queues) do
        if name ~= queue.name then
            others[#others + 1] = name
            notices.post(queue, name, kind, { n = batch.number, l = batch.l, reason = reason })
        end
    end
    return others
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

-- In another queue of the batch: forget it.
local function forget(queue, ref)
    call("HDEL", queue.key .. ":bv", copy_field(ref))
    call("UNLINK", members_key(queue, ref), places_key(queue, ref))
end

-- Promote or cancel the next piece of the queue's own members of a batch that was started or cancelled; return whether
-- there are more.
local function continue_batch(queue, ref)
    local field = copy_field(ref)
    local after = call("HGET", queue.key .. ":bs", field)
    local batch = after and batches.get_ref(queue, ref)
    if not batch then
        call("HDEL", queue.key .. ":bs", field)
        return false
    end
    local found, last = members(queue, ref, after)
    if batch.state == "running" then
        promotion.promote_batch(queue, found.h)
    else
        cancel_members(queue, found, batch.reason or "batch " .. batch.l .. " was cancelled")
    end
    if last then
        call("HSET", queue.key .. ":bs", field, last)
        return true
    end
    call("HDEL", queue.key .. ":bs", field)
    if ref.q == queue.name then
        batches.end_if_done(queue, batches.find(queue, ref.n))
    elseif batch.gone and not joins.has_open(queue) then
        forget(queue, ref)
    end
    return false
end

-- A batch that is started or cancelled, whether the caller is to continue it, and the other queues that it is to
-- continue it in.
local function change(queue, batch, state)
    local others = {}
    if state then
        batch.state = state
        put(queue, batch)
        call("HSET", queue.key .. ":bs", copy_field(ref_of(queue, batch)), 0)
        others = tell(queue, batch, state)
    end
    local has_more = continue_batch(queue, ref_of(queue, batch))
    return { info(queue, batches.find(queue, batch.number)), has_more and 1 or 0, others }
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

-- In another queue of the batch: it was started or cancelled.
function batches.changed(queue, ref, state, reason)
    if learn(queue, ref, state, reason) then
        call("HSET", queue.key .. ":bs", copy_field(ref), 0)
        continue_batch(queue, ref)
    end
end

-- A member that was sent after the queue learned of the cancellation.
function batches.cancel_late(queue, ref)
    if batches.is_cancelled(queue, ref) then
        call("HSET", queue.key .. ":bs", copy_field(ref), 0)
        continue_batch(queue, ref)
    end
end

-- In another queue of the batch: the owner has forgotten it. Members that are being cancelled, or sent just now, still
-- need to know how it ended.
function batches.gone(queue, ref)
    local copy = copy_of(queue, ref) or { l = ref.l, state = "cancelling" }
    if joins.has_open(queue) or call("HEXISTS", queue.key .. ":bs", copy_field(ref)) == 1 then
        copy.gone = true
        put_copy(queue, ref, copy)
    else
        forget(queue, ref)
    end
end

function batches.forget_gone(queue)
    for field, row in pairs(pairs_of(call("HGETALL", queue.key .. ":bv"))) do
        if unpacked(row).gone and call("HEXISTS", queue.key .. ":bs", field) == 0 then
            local name, number = field:match("^(.*)\n(%d+)$")
            forget(queue, { q = name, n = tonumber(number) })
        end
    end
end

-- The next piece of a batch that is being started or cancelled, and whether there are more; nothing where it was flushed
-- meanwhile. `owner` is the queue of the batch, where that is another one.
function batches.continue(key, now, given)
    local queue = queues.find(key, now)
    if queue and given.owner then
        return { {}, continue_batch(queue, { q = given.owner, n = given.number }) and 1 or 0 }
    end
    local batch = queue and batches.find(queue, given.number)
    return batch and change(queue, batch)
end

-- A piece of each batch that a client left behind; return whether there is more.
function batches.sweep(queue)
    local has_more = false
    for _, field in ipairs(call("HKEYS", queue.key .. ":bs")) do
        local name, number = field:match("^(.*)\n(%d+)$")
        has_more = continue_batch(queue, { q = name, n = tonumber(number) }) or has_more
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

-- Every member in the queue, ended ones included: where it is; and the other queues of the batch. `owner` and `number`
-- name a batch of another queue.
function batches.list(key, now, given)
    local queue = queues.find(key, now)
    local batch = queue and not given.owner and batches.get(queue, given.name, given.number)
    local ref = batch and ref_of(queue, batch) or { q = given.owner, n = given.number }
    local found, others = {}, {}
    for _, where in pairs(queue and pairs_of(call("HGETALL", places_key(queue, ref))) or {}) do
        local is_held, number = where:sub(1, 1) == "h", tonumber(where:sub(2))
        local message
        if is_held then
            message = held.find(queue, number)
        else
            message = log.at(queue, number)
        end
        if message then
            message.position = not is_held and number or nil
            found[#found + 1] = { is_held and 1 or 0, number, log.id_of(queue, message), message.c }
        end
    end
    for name in pairs(batch and batch.queues or {}) do
        if name ~= queue.name then
            others[#others + 1] = name
        end
    end
    return { ref.n, found, others }
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
    tell(queue, batch, "gone")
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

-- The members that a batch has in other queues are cancelled.
function batches.abandon(queue, batch)
    if not ENDED[batch.state] then
        batch.state, batch.ended_at = "cancelled", queue.now
        put(queue, batch)
        tell(queue, batch, "cancelling", "batch " .. batch.l .. " was flushed with queue " .. shards.queue_name(queue))
    end
    tell(queue, batch, "gone")
    call("UNLINK", queue.key .. ":bm" .. whole(batch.number), queue.key .. ":bl" .. whole(batch.number))
end

-- Batches of other queues go on without the members that they had in a queue that is flushed.
function batches.leave_all(queue)
    for _, field in ipairs(call("HKEYS", queue.key .. ":bv")) do
        local name, number = field:match("^(.*)\n(%d+)$")
        local ref = { q = name, n = tonumber(number) }
        for _, member in ipairs(call("ZRANGE", members_key(queue, ref), 0, -1)) do
            notices.post(queue, name, "left", { n = ref.n, m = member, state = "cancelled" })
        end
        forget(queue, ref)
    end
end
