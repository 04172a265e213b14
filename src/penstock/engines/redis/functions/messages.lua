-- (new) -> ready or held: sending.
--
-- A draft is {payload, content type, options}; options are nil for a plain message, else a map: p priority, delay, ttl,
-- d deadline_at, a address, k key and its hash, h headers, i id, y created_by, b batch, after, bq queue of the batch.

-- The drafts of a call: types and options by place, payloads from the third argument on.
function messages.drafts(given, args, from)
    local drafts = {}
    local options, types, kind = given.options or {}, given.types or {}, given.type
    for place = 1, #args - from + 1 do
        drafts[place] = { args[from + place - 1], types[place] or kind, options[place] }
    end
    return drafts
end

-- Leave out ticks of a schedule that the queue has had, even if their messages are gone: a sweep that stalls before it
-- sends may be overtaken by another one. Return the field that holds the last tick, and its new value.
local function leave_out_ticks(queue, plan, ticks)
    local field = "tick:" .. ticks.schedule
    local since, last = (call("HGET", queue.key, field) or "0:0"):match("^(%d+):(%d+)$")
    since, last = tonumber(since), tonumber(last)
    for place, tick in ipairs(ticks.at) do
        if ticks.since < since or ticks.since == since and tick <= last then
            plan.repeated[place] = true
        else
            since, last = ticks.since, tick
        end
    end
    return field, whole(since) .. ":" .. whole(last)
end

function messages.send(key, now, given, args)
    local queue = queues.ensure(key, now)
    shards.check_order(queue, given)
    local drafts = messages.drafts(given, args, 3)
    local plan = messages.check(queue, drafts, given.is_checked)
    local field, last
    if given.ticks then
        field, last = leave_out_ticks(queue, plan, given.ticks)
    end
    local sent = messages.put(queue, drafts, plan)
    if field then
        call("HSET", queue.key, field, last)
    end
    return { queue.now, queue.salt, sent }
end

local function check_size(queue, payload)
    if #payload > queue.policy.max_payload_bytes then
        refuse("TOO_LARGE", #payload, queue.policy.max_payload_bytes)
    end
end
messages.check_size = check_size

local function check_address(queue, plan, options)
    local address = options.a
    if not queue.policy.primary_group then
        refuse("ADDRESS_WITHOUT_OWNER", address)
    end
    local taken = plan.addresses[address]
    local existing = taken or addresses.live(queue, address)
    if existing then
        refuse("DUPLICATE_ADDRESS", address, existing)
    end
    plan.addresses[address] = options.i or ""
end

-- Check every draft against the state of the queue, with nothing written. The plan says which drafts are not sent again
-- and which batch each joins. `refs` says by place which member of another queue's batch a draft is, where the owner was
-- asked before.
function messages.check(queue, drafts, has_size, refs)
    local plan = { addresses = {}, chosen = {}, repeated = {}, batches = {}, is_plain = true }
    for place, draft in ipairs(drafts) do
        if not has_size then
            check_size(queue, draft[1])
        end
        local options = draft[3]
        if options then
            plan.is_plain = false
            local id = options.i
            if id and (plan.chosen[id] or messages.exists(queue, id)) then
                plan.repeated[place] = true
            else
                if id then
                    plan.chosen[id] = true
                end
                if options.b and refs and options.bq and options.bq ~= queue.name then
                    batches.check_visit(queue, options)
                    plan.batches[place] = { ref = refs[place] }
                elseif options.b then
                    plan.batches[place] = batches.check_join(queue, options)
                end
                if options.a then
                    check_address(queue, plan, options)
                end
            end
        end
    end
    return plan
end

function messages.exists(queue, id)
    local position, number = log.locate(queue, id)
    return (position or number) ~= nil
end

-- Send checked drafts; return the position or the id of each.
function messages.put(queue, drafts, plan)
    groups.ensure_primary(queue)
    local policy = queue.policy
    local shards, count = policy.shards, #drafts
    local first_shard = (shards == 1 or policy.ordered) and 0 or floor(chance * shards)
    local sent, lanes, order, same = {}, {}, {}, {}
    for place, draft in ipairs(drafts) do
        local options = draft[3] or {}
        if plan.repeated[place] then
            sent[place] = options.i
        else
            local shard = policy.ordered and (options.hash or 0) % shards
                or options.k and options.hash % shards
                or (first_shard + floor((place - 1) * min(shards, count) / count)) % shards
            local message = messages.stored(queue, draft, options, shard, plan.batches[place], same)
            local batch = message.b and batches.get_ref(queue, message.b)
            local waits = batch and batch.state == "open"
            if waits or message.v > queue.now then
                message.o = waits or nil
                sent[place] = messages.hold(queue, message, draft[1])
            else
                if message.d and message.d <= queue.now then
                    groups.recheck_expiry(queue, nil, message.d - 1)
                end
                message.v = nil
                local lane = log.lane_name(message.p or 0, shard)
                if not lanes[lane] then
                    lanes[lane] = { items = {}, places = {} }
                    order[#order + 1] = lane
                end
                local own = lanes[lane]
                own.items[#own.items + 1], own.places[#own.places + 1] = { message, draft[1] }, place
            end
        end
    end
    for _, lane in ipairs(order) do
        messages.append(queue, lane, lanes[lane], sent)
    end
    return sent
end

-- The message as stored. Plain messages of one type and shard share the map, so that it is packed once.
function messages.stored(queue, draft, options, shard, joined, same)
    local policy, now = queue.policy, queue.now
    local delay = options.delay or policy.delay_seconds
    local ttl = options.ttl or policy.ttl_seconds
    local mark = not draft[3] and delay == 0 and whole(shard) .. (draft[2] or "")
    if mark and same[mark] then
        same[mark].v = now
        return same[mark]
    end
    local message = {
        c = now, i = options.i, t = draft[2] or nil, h = options.h, x = ttl and now + microseconds(ttl), d = options.d,
        a = options.a, k = options.k, y = options.y, v = now + microseconds(delay),
        p = options.p, s = shard > 0 and shard or nil,
    }
    if joined then
        message.b = joined.ref or batches.join(queue, joined)
    end
    if mark then
        same[mark] = message
    end
    return message
end

function messages.hold(queue, message, payload)
    message.i = message.i or held.new_id(queue)
    local number = held.add(queue, message, payload)
    if message.a then
        addresses.take(queue, message.a, message.i, nil)
    end
    if message.b then
        batches.place(queue, message.b, "h" .. whole(number))
    end
    return message.i
end

function messages.append(queue, lane, own, sent)
    local first = log.append(queue, lane, own.items)
    for i, place in ipairs(own.places) do
        local message, position = own.items[i][1], first + i - 1
        sent[place] = message.i or position
        if message.i then
            log.identify(queue, message.i, "p" .. whole(position))
        end
        if message.a then
            addresses.take(queue, message.a, message.i or queues.made_id(queue, message.c, position), position)
        end
        if message.b then
            batches.place(queue, message.b, "p" .. whole(position))
        end
    end
end
