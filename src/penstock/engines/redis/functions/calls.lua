-- Calls: how a verb reads its arguments, refuses, and answers. Lua has no rollback, so every verb checks before its
-- first write: `refuse` unwinds to the caller with nothing changed.
local decisions, queues, groups, log, audit, held, leases, tracked = {}, {}, {}, {}, {}, {}, {}, {}
local outcomes, batches, messages, promotion, lapsed, deliveries, settlements = {}, {}, {}, {}, {}, {}, {}
local addresses, letters, cursors, consumers, retention, removal = {}, {}, {}, {}, {}, {}
local inspection, listing, windows, sink, claims, store, health = {}, {}, {}, {}, {}, {}, {}
local notices, joins, shards = {}, {}, {}

-- Functions of the server and of Lua, which exist only while a function of the library runs.
local call, pack, unpacked, floor, min, max, format

local LIVE = { held = true, ready = true, leased = true }
local END = 9007199254740991
-- Elements of a sorted set that are read at a time, where a loop may end before the last.
local AT_A_TIME = 100
-- Messages that one call promotes, reclaims or ends besides those that it was asked for. Other clients wait for a call,
-- so the caller calls again for the rest.
local STEPS = 1000

-- The queues that this call has opened, by key: two parts of a call share one state.
local opened = {}
-- Names of queues that the call may create, what they are created with, and those that it has created.
local creation, created = nil, {}
-- The random numbers of the call: between 0 and 1, and 48 bits for ids.
local chance, id_bits = 0, 0
-- The key that the call is for, over how many slots its caller believes the queue to be spread (0: all in one), and the
-- token that a receive goes on with in a further shard (see shards.lua).
local called_key, slots_given, token_given = "", 0, nil
-- Positions of a queue that is spread over slots: the position in the shard times this number, plus the shard.
local MAX_SHARDS = 1024
-- Whether queues may be on different nodes, and the notices that the call has posted to them.
local in_cluster, posted = false, {}

local function refuse(code, ...)
    error({ refusal = { code, ... } }, 0)
end

-- Write a whole number in full: Lua would round it to 14 digits.
local function whole(number)
    return format("%.0f", number)
end

-- Members of sorted sets with equal scores are ordered as text.
local function padded(number)
    return format("%016.0f", number)
end

-- Round half to even, as the rules do.
local function microseconds(seconds)
    local scaled = seconds * 1000000
    local rounded = floor(scaled + 0.5)
    if scaled + 0.5 == rounded and rounded % 2 == 1 then
        rounded = rounded - 1
    end
    return rounded
end

-- A sentence with its {} filled in.
local function filled(template, ...)
    local values, place = { ... }, 0
    return (template:gsub("{}", function()
        place = place + 1
        return values[place]
    end))
end

-- A value of a reply: nil would end the array.
local function optional(value)
    if value == nil then
        return false
    end
    return value
end

local function pairs_of(flat)
    local found = {}
    for i = 1, #flat, 2 do
        found[flat[i]] = flat[i + 1]
    end
    return found
end

-- Sort rows by the given fields, ascending.
local function sort_by(rows, ...)
    local fields = { ... }
    table.sort(rows, function(one, other)
        for _, field in ipairs(fields) do
            if one[field] ~= other[field] then
                return one[field] < other[field]
            end
        end
        return false
    end)
end

local function clock(given)
    if given ~= "" then
        return tonumber(given)
    end
    local time = call("TIME")
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- While a slot migrates, its keys are on two nodes, and a function would see some of them. Two keys that do not exist are
-- then refused by both nodes, so that nothing is read or written by halves.
local function is_whole(key)
    local found = redis.pcall("EXISTS", key .. ":?1", key .. ":?2")
    return type(found) == "number"
end

-- Register a verb: KEYS[1] is the key of the queue or of the store; the arguments are the time (empty for the server's
-- own), a packed table, and payloads.
local function verb(name, handler, flags)
    local function callback(keys, args)
        opened, call, pack, unpacked = {}, redis.call, cmsgpack.pack, cmsgpack.unpack
        floor, min, max, format = math.floor, math.min, math.max, string.format
        local now = clock(args[1])
        local given = unpacked(args[2])
        if given.version ~= VERSION then
            return { "!", "VERSION", VERSION }
        end
        creation, created = given.create, {}
        chance, id_bits = given.random or 0, given.bits or 0
        in_cluster, posted = given.cluster or false, {}
        called_key, slots_given, token_given = keys[1], given.slots or 0, given.token
        if in_cluster and not is_whole(keys[1]) then
            return redis.error_reply("TRYAGAIN the slot of " .. keys[1] .. " migrates")
        end
        local ok, result = pcall(handler, keys[1], now, given, args)
        if ok then
            if given.notify then
                call("PUBLISH", given.notify, "")
            end
            if #posted > 0 then
                return { "+", result, posted }
            end
            return result
        end
        if type(result) == "table" and result.refusal then
            for _, key in ipairs(created) do
                call("DEL", key, key .. ":gs", key .. ":g1")
            end
            return { "!", unpack(result.refusal) }
        end
        return redis.error_reply(type(result) == "table" and result.err or tostring(result))
    end
    redis.register_function({ function_name = "penstock_" .. name, callback = callback, flags = flags or {} })
end

local READS = { "no-writes" }
-- What ends or removes messages works at maxmemory too: it is the way back.
local ENDS = { "allow-oom" }
