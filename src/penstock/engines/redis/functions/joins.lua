-- Joins: a send to a batch that another queue owns, where the two queues are on different nodes. The drafts are put
-- aside in the queue (open), the owner adds members (add), and the drafts are sent with them (send), or dropped. The owner
-- keeps the members of a join until it is told how it ended. A sweep drops a join whose client has vanished; its owners
-- then refuse members for it.

local ABANDONED, REMEMBERED = 60 * 1000000, 24 * 3600 * 1000000

local function find(queue, number)
    local row = call("HGET", queue.key .. ":jn", number)
    return row and unpacked(row) or nil
end

-- The batches that the drafts join, each with the places of its drafts.
local function wanted(queue, drafts, plan)
    local found, known = {}, {}
    for place, draft in ipairs(drafts) do
        local options = draft[3]
        if options and options.b and options.bq and options.bq ~= queue.name and not plan.repeated[place] then
            local mark = options.bq .. "\n" .. (options.after or "") .. "\n" .. options.b
            if not known[mark] then
                known[mark] = { options.bq, options.b, optional(options.after), {} }
                found[#found + 1] = known[mark]
            end
            local places = known[mark][4]
            places[#places + 1] = place
        end
    end
    return found
end

-- Check the drafts and put them aside; return the number of the join, and the batches.
function joins.open(key, now, given, args)
    local queue = queues.ensure(key, now)
    shards.check_order(queue, given)
    local drafts = messages.drafts(given, args, 3)
    local plan = messages.check(queue, drafts, given.is_checked, {})
    local batches_of = wanted(queue, drafts, plan)
    local owners = {}
    for _, one in ipairs(batches_of) do
        owners[one[1]] = true
    end
    local number = whole(queues.next(queue, "join"))
    call("HSET", queue.key .. ":jn", number, pack({ drafts = drafts, owners = owners, at = now }))
    call("ZADD", queue.key .. ":jz", whole(now), number)
    return { number, batches_of }
end

-- In the owner: the members of a join.
function joins.add(key, now, given)
    local owner = queues.ensure(key, now)
    local mark = given.sender .. "\n" .. given.number
    if call("ZSCORE", owner.key .. ":jx", mark) then
        refuse("JOIN_DROPPED")
    end
    batches.check_takes(owner, given.name, given.after)
    local batch, members = batches.add_members(owner, given.sender, given.name, given.after, given.count)
    local row = call("HGET", owner.key .. ":jm", mark)
    local kept = row and unpacked(row) or {}
    kept[#kept + 1] = { n = batch.number, members = members }
    call("HSET", owner.key .. ":jm", mark, pack(kept))
    return { batch.number, batch.l, batch.state, members }
end

local function close(queue, number, join, unused)
    call("HDEL", queue.key .. ":jn", number)
    call("ZREM", queue.key .. ":jz", number)
    for name in pairs(join.owners) do
        notices.post(queue, name, "joined", { number = number, unused = unused and (unused[name] or {}) or nil })
    end
end

-- Send the drafts. `refs` says by place which member each draft is.
function joins.send(key, now, given)
    local queue = queues.get(key, now)
    local join = find(queue, given.number)
    if not join then
        refuse("JOIN_DROPPED")
    end
    shards.check_order(queue, given)
    local ok, plan = pcall(messages.check, queue, join.drafts, true, given.refs)
    if not ok then
        close(queue, given.number, join, nil)
        return { "!", unpack(plan.refusal) }
    end
    local unused = {}
    for place, ref in pairs(given.refs) do
        if plan.repeated[place] then
            local own = unused[ref.q] or {}
            own[#own + 1] = { n = ref.n, m = ref.m }
            unused[ref.q] = own
        else
            batches.enter(queue, ref, given.states[place])
        end
    end
    local sent = messages.put(queue, join.drafts, plan)
    close(queue, given.number, join, unused)
    for _, ref in pairs(given.refs) do
        batches.cancel_late(queue, ref)
    end
    if not joins.has_open(queue) then
        batches.forget_gone(queue)
    end
    return { queue.now, queue.salt, sent }
end

function joins.drop(key, now, given)
    local queue = queues.find(key, now)
    local join = queue and find(queue, given.number)
    if join then
        close(queue, given.number, join, nil)
    end
    return 1
end

function joins.has_open(queue)
    return call("EXISTS", queue.key .. ":jz") == 1
end

local function drop_upto(queue, last)
    for _, number in ipairs(call("ZRANGEBYSCORE", queue.key .. ":jz", "-inf", last)) do
        close(queue, number, find(queue, number), nil)
    end
    if not joins.has_open(queue) then
        batches.forget_gone(queue)
    end
end

function joins.drop_all(queue)
    drop_upto(queue, "+inf")
end

-- Drop the joins whose clients have vanished.
function joins.drop_abandoned(queue)
    drop_upto(queue, whole(queue.now - ABANDONED))
    call("ZREMRANGEBYSCORE", queue.key .. ":jx", "-inf", whole(queue.now - REMEMBERED))
end

-- In the owner: a join has ended. `unused` are the members that it did not send; without it, it sent none.
function joins.close(owner, from, given)
    local mark = from .. "\n" .. given.number
    local row = call("HGET", owner.key .. ":jm", mark)
    call("ZADD", owner.key .. ":jx", whole(owner.now), mark)
    if not row then
        return
    end
    call("HDEL", owner.key .. ":jm", mark)
    if given.unused then
        for _, one in ipairs(given.unused) do
            batches.drop_members(owner, one.n, { one.m })
        end
        return
    end
    for _, one in ipairs(unpacked(row)) do
        batches.drop_members(owner, one.n, one.members)
    end
end
