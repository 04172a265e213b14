-- Batches: messages that are held until started, and end together. Members are elements of a set, so that a crash
-- cannot corrupt a count.
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
        refuse("NO_BATCH", name, unpack(call("HKEYS", queue.key .. ":bn")))
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
    call("SADD", owner.key .. ":bm" .. whole(batch.number), member)
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
    if not owner or call("SREM", owner.key .. ":bm" .. whole(ref.n), ref.m) == 0 then
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
    return call("SCARD", queue.key .. ":bm" .. whole(number))
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

-- Members that have not ended, by queue: numbers of held ones and positions.
local function members(queue, batch)
    local where = pairs_of(call("HGETALL", queue.key .. ":bl" .. whole(batch.number)))
    local found = {}
    for _, member in ipairs(call("SMEMBERS", queue.key .. ":bm" .. whole(batch.number))) do
        local kind, number, name = where[member]:match("^(.)(%d+)\n(.*)$")
        found[name] = found[name] or { h = {}, p = {} }
        local own = found[name][kind]
        own[#own + 1] = tonumber(number)
    end
    local names = {}
    for name, own in pairs(found) do
        names[#names + 1] = name
        table.sort(own.h)
        table.sort(own.p)
    end
    table.sort(names)
    return found, names
end
batches.members = members

function batches.start(key, now, given)
    local queue = queues.ensure(key, now)
    check_owner(queue, given.name)
    local batch = batches.resolve(queue, given.name, given.after) or create(queue, given.name, given.after)
    if batch.state == "open" then
        batch.state = "running"
        put(queue, batch)
        local found, names = members(queue, batch)
        for _, name in ipairs(names) do
            promotion.promote_batch(queues.find(queues.other(queue, name), now), found[name].h)
        end
        batches.end_if_done(queue, batches.find(queue, batch.number))
    end
    return info(queue, batches.find(queue, batch.number))
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
            found[#found + 1] = { position, row ~= nil }
        end
    end
    return found
end

local function cancel_unleased(queue, group, found, reason)
    local is_primary = groups.is_primary(queue, group)
    for _, one in ipairs(found) do
        local position, is_tracked = one[1], one[2]
        local attempt = 0
        if not is_tracked then
            cursors.skip(group, position)
        elseif is_primary then
            attempt = tracked.remove(group, position).attempt
        end
        if not is_tracked or is_primary then
            outcomes.finish(queue, group, {
                event = "batch_cancel", state = "cancelled", first = position, last = position, reason = reason,
                attempt = attempt,
            }, nil, is_primary)
        end
    end
end

-- Cancel the unleased members in all queues of the batch except one. All groups are read before any is changed, because
-- members leave the batch when the primary group is changed.
function batches.cancel_members(queue, batch, reason, without)
    local found, names = members(queue, batch)
    for _, name in ipairs(names) do
        local own = queues.find(queues.other(queue, name), queue.now)
        if own and name ~= without then
            promotion.withdraw(own, found[name].h, { event = "batch_cancel", state = "cancelled", reason = reason })
            local affected = {}
            for _, group in ipairs(groups.leasing(own)) do
                affected[#affected + 1] = { group, unleased(own, group, found[name].p) }
            end
            for _, one in ipairs(affected) do
                cancel_unleased(own, one[1], one[2], reason)
            end
        end
    end
end

function batches.cancel(key, now, given)
    local queue = queues.get(key, now)
    local batch = batches.get(queue, given.name, given.after)
    if batch.state == "open" or batch.state == "running" then
        batch.state = "cancelling"
        put(queue, batch)
        batches.cancel_members(queue, batch, "batch " .. batch.l .. " was cancelled")
        batches.end_if_done(queue, batches.find(queue, batch.number))
    end
    return info(queue, batches.find(queue, batch.number))
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
    batches.cancel_members(queue, batch, "batch " .. batch.l .. " was flushed with queue " .. queue.name, queue.name)
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
            for _, member in ipairs(call("SMEMBERS", owner.key .. ":bm" .. number)) do
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
    local newest = 0
    local found, names = members(queue, batch)
    for _, name in ipairs(names) do
        local own = queues.find(queues.other(queue, name), queue.now)
        for _, number in ipairs(own and found[name].h or {}) do
            newest = max(newest, held.find(own, number).c)
        end
    end
    return newest
end
