-- The sink: messages staged part by part, then sent all at once and only once. A stage is a list of packed drafts; the
-- hash of stages says which key and part each belongs to. The ledger entries of releases are kept with the queue, so
-- that a release is one call in one slot.

local ABANDONED = 24 * 3600 * 1000000

local function every(queue)
    local found = {}
    for number, row in pairs(pairs_of(call("HGETALL", queue.key .. ":sg"))) do
        local stage = unpacked(row)
        stage.number = tonumber(number)
        found[#found + 1] = stage
    end
    sort_by(found, "number")
    return found
end

local function drop(queue, stage)
    call("DEL", queue.key .. ":st" .. whole(stage.number))
    call("HDEL", queue.key .. ":sg", whole(stage.number))
end

function sink.stage(key, now, given, args)
    local queue = queues.ensure(key, now)
    shards.check_order(queue, given)
    local drafts = messages.drafts(given, args, 3)
    for _, draft in ipairs(drafts) do
        messages.check_size(queue, draft[1])
    end
    local number = whole(queues.next(queue, "stage"))
    for _, draft in ipairs(drafts) do
        call("RPUSH", queue.key .. ":st" .. number, pack(draft))
    end
    call("HSET", queue.key .. ":sg", number, pack({ key = given.key, part = given.part, at = now }))
    return #drafts
end

function sink.release(key, now, given)
    local queue = queues.ensure(key, now)
    local entry = given.key .. "/" .. shards.queue_name(queue)
    local count = false
    local stages = every(queue)
    if call("HEXISTS", queue.key .. ":sl", entry) == 0 then
        local drafts = {}
        for _, part in ipairs(given.parts) do
            for _, stage in ipairs(stages) do
                for _, row in ipairs(stage.key == given.key and stage.part == part and call("LRANGE",
                        queue.key .. ":st" .. whole(stage.number), 0, -1) or {}) do
                    drafts[#drafts + 1] = unpacked(row)
                end
            end
        end
        local plan = messages.check(queue, drafts)
        if #drafts > 0 then
            messages.put(queue, drafts, plan)
        end
        count = #drafts
        call("HSET", queue.key .. ":sl", entry, '{"count":' .. whole(count) .. ',"at":' .. whole(now) .. "}")
    end
    sink.drop(queue, given.key, stages)
    return count
end

function sink.drop(queue, key, stages)
    for _, stage in ipairs(stages or every(queue)) do
        if stage.key == key or stage.at < queue.now - ABANDONED then
            drop(queue, stage)
        end
    end
end

function sink.discard(key, now, given)
    local queue = queues.find(key, now)
    if queue then
        sink.drop(queue, given.key)
    end
    return 1
end

function sink.drop_abandoned(queue)
    sink.drop(queue, nil)
end

function sink.drop_all(queue)
    for _, stage in ipairs(every(queue)) do
        drop(queue, stage)
    end
end
