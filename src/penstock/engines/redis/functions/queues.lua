-- Queues and groups: lookup and creation. KEYS[1] is the hash of the queue; its other keys begin with it.

local policies = {}

-- A shard with a slot of its own has one lane for each priority.
local function decoded(policy, slots)
    local mark = policy .. slots
    local known = policies[mark]
    if not known then
        known = cjson.decode(policy)
        known.shards = slots > 0 and 1 or known.shards
        policies = { [mark] = known }
    end
    return known
end

local FIELDS = { "policy", "created_at", "salt", "last", "entry", "held", "trimmed", "trimmed_entry", "token",
        "primary", "slots", "shard", "generation", "mixed" }

function queues.find(key, now)
    if opened[key] then
        return opened[key]
    end
    local row = call("HMGET", key, unpack(FIELDS))
    if not row[1] then
        return nil
    end
    local at = key:find("{q:", 1, true)
    local queue = { key = key, now = now, name = key:sub(at + 3, -2), prefix = key:sub(1, at - 1), stored = row[1] }
    for i = 2, #FIELDS do
        queue[FIELDS[i]] = tonumber(row[i] or 0)
    end
    queue.policy = decoded(row[1], queue.slots)
    shards.identify(queue)
    opened[key] = queue
    return queue
end

function queues.get(key, now)
    local queue = queues.find(key, now)
    if not queue then
        refuse("NO_QUEUE")
    end
    return queue
end

-- -- creation -----------------------------------------------------------------------------------------------------

queues.OWN_KEYS = {
    ":log", ":ln", ":h", ":hp", ":hd", ":hx", ":hl", ":id", ":ad", ":a", ":as", ":ar", ":ae", ":kp", ":kz", ":wz",
    ":mk", ":rm", ":rw", ":ex", ":dl", ":b", ":bn", ":bs", ":bv",
}
local FIRST_KEYS = { ":gs", ":sg", ":r0:0", ":g1", ":le1", ":lx1", ":c1", ":t1", ":s1", ":d1", ":dz1", ":co1" }
-- Commands that write. A user who lacks one of them would leave a call half done.
local WRITES = { "HSET", "HDEL", "HINCRBY", "ZADD", "ZREM", "ZREMRANGEBYSCORE", "XADD", "XDEL", "XTRIM", "RPUSH" }

-- Refuse a queue whose keys exist already, or a user who may not write them.
function queues.check_creation(key)
    local wanted = {}
    for _, suffixes in ipairs({ queues.OWN_KEYS, FIRST_KEYS }) do
        for _, suffix in ipairs(suffixes) do
            wanted[#wanted + 1] = key .. suffix
        end
    end
    if call("EXISTS", unpack(wanted)) > 0 then
        for _, own in ipairs(wanted) do
            if call("EXISTS", own) > 0 then
                refuse("FOREIGN_KEY", own)
            end
        end
    end
    for _, command in ipairs(WRITES) do
        if not redis.acl_check_cmd(command, key, "1", "1", "1") then
            refuse("NO_RIGHT", command:lower())
        end
    end
    for _, command in ipairs({ "DEL", "UNLINK" }) do
        if not redis.acl_check_cmd(command, key) then
            refuse("NO_RIGHT", command:lower())
        end
    end
    local channel = key:sub(1, key:find("{q:", 1, true) - 1) .. ":dead"
    if not redis.acl_check_cmd("PUBLISH", channel, "1") then
        refuse("NO_RIGHT", "publish to " .. channel)
    end
end

-- Find the queue, or create it on first use. The caller registers its name before, so that every sweep finds it.
function queues.ensure(key, now)
    local queue = queues.find(key, now)
    if queue then
        return queue
    end
    shards.check_absent(key)
    local at = key:find("{q:", 1, true)
    local name = key:sub(at + 3, -2)
    if not (creation and creation.names[name]) then
        refuse("NEW_QUEUE", name)
    end
    queues.check_creation(key)
    -- Numbers of an earlier queue of the name are not given out again: readers may have kept them.
    local numbers = call("HMGET", key, "last", "entry", "batch")
    call("HSET", key, "policy", creation.policy, "created_at", whole(now), "salt", creation.salt,
        "last", numbers[1] or 0, "entry", numbers[2] or 0, "trimmed", numbers[1] or 0, "trimmed_entry", numbers[2] or 0)
    if not numbers[1] then
        created[#created + 1] = key
    end
    return queues.find(key, now)
end

function queues.other(queue, name)
    return queue.prefix .. "{q:" .. name .. "}"
end

function queues.at_most_once(queue)
    return queue.policy.delivery == "at_most_once"
end

function queues.keeps_order(queue)
    return queue.policy.ordered and not queues.at_most_once(queue)
end

function queues.default_group(queue)
    return queue.policy.primary_group or "default"
end

-- The next value of a counter of the queue.
function queues.next(queue, counter)
    return call("HINCRBY", queue.key, counter, 1)
end

function queues.made_id(queue, created_at, position)
    local milliseconds = floor(created_at / 1000)
    local high, low = floor(queue.salt / 16384), queue.salt % 16384
    position = shards.outer(queue, position)
    return format("%08x-%04x-7%03x-%04x-%012x", floor(milliseconds / 65536) % 4294967296, milliseconds % 65536, high,
        32768 + low, position)
end

-- -- groups -------------------------------------------------------------------------------------------------------

local function group_of(queue, name, id)
    local key = queue.key .. ":g" .. id
    local row = call("HMGET", key, "stream", "table", "used_at", "expired_upto")
    return {
        id = id, name = name, key = key, stream = tonumber(row[1] or nil), table = row[2] or "messages",
        used_at = tonumber(row[3] or 0), expired_upto = tonumber(row[4] or 0),
        leases = queue.key .. ":le" .. id, lease_ends = queue.key .. ":lx" .. id, cursors = queue.key .. ":c" .. id,
        tracked = queue.key .. ":t" .. id, skips = queue.key .. ":s" .. id, letters = queue.key .. ":d" .. id,
        letter_times = queue.key .. ":dz" .. id, consumers = queue.key .. ":co" .. id,
        removed_consumers = queue.key .. ":rc" .. id, leaving = queue.key .. ":lv" .. id,
    }
end

function groups.find(queue, name)
    queue.groups = queue.groups or {}
    local known = queue.groups[name]
    if known == nil then
        local id = call("HGET", queue.key .. ":gs", name)
        known = id and group_of(queue, name, id) or false
        queue.groups[name] = known
    end
    return known or nil
end

function groups.get(queue, name)
    local group = groups.find(queue, name)
    if not group then
        refuse("NO_GROUP", name)
    end
    return group
end

function groups.check_creation(group)
    for _, key in ipairs({ group.key, group.leases, group.lease_ends, group.cursors, group.tracked, group.skips,
            group.letters, group.letter_times, group.consumers }) do
        if call("EXISTS", key) > 0 then
            refuse("FOREIGN_KEY", key)
        end
    end
end

-- Find the group, or create it on first use. What ended while it was held has ended in every group.
function groups.ensure(queue, name)
    local group = groups.find(queue, name)
    if group then
        return group
    end
    local id = whole(tonumber(call("HGET", queue.key, "group") or 0) + 1)
    groups.check_creation(group_of(queue, name, id))
    call("HSET", queue.key, "group", id)
    call("HSET", queue.key .. ":gs", name, id)
    call("HSET", queue.key .. ":g" .. id, "used_at", whole(queue.now))
    queue.groups[name] = nil
    group = groups.find(queue, name)
    for _, member in ipairs(call("ZRANGE", queue.key .. ":wz", 0, -1)) do
        call("HINCRBY", group.key, member:match(":(.*)$"), 1)
    end
    return group
end

function groups.ensure_leasing(queue, name)
    local group = groups.find(queue, name)
    if group then
        groups.check_leasing(queue, group)
    end
    return group or groups.ensure(queue, name)
end

function groups.check_leasing(queue, group)
    if group.stream then
        refuse("STREAM_GROUP", group.name)
    end
end

function groups.every(queue)
    local found = {}
    local names = call("HKEYS", queue.key .. ":gs")
    table.sort(names)
    for _, name in ipairs(names) do
        found[#found + 1] = groups.find(queue, name)
    end
    return found
end

-- Groups that receive with leases, unlike stream groups.
function groups.leasing(queue)
    local found = {}
    for _, group in ipairs(groups.every(queue)) do
        if not group.stream then
            found[#found + 1] = group
        end
    end
    return found
end

function groups.is_primary(queue, group)
    return group.name == queue.policy.primary_group
end

-- Create the primary group with the first send, so that nothing is trimmed before it has read it.
function groups.ensure_primary(queue)
    if queue.primary == 0 and queue.policy.primary_group then
        groups.ensure(queue, queue.policy.primary_group)
        call("HSET", queue.key, "primary", 1)
        queue.primary = 1
    end
end

-- The server frees unlinked keys in the background.
function groups.delete_messages(group)
    call("UNLINK", group.leases, group.lease_ends, group.cursors, group.tracked, group.tracked .. "d",
        group.tracked .. "r", group.tracked .. "l", group.tracked .. "x", group.tracked .. "e", group.skips,
        group.letters, group.letter_times)
end

function groups.delete_keys(group)
    groups.delete_messages(group)
    call("UNLINK", group.key, group.consumers, group.removed_consumers, group.leaving)
end

function groups.forget(key, now, given)
    local queue = shards.find(key, now)
    local group = queue and groups.find(queue, given.group)
    if not group then
        return 0
    end
    if groups.is_primary(queue, group) then
        refuse("PRIMARY_GROUP", group.name)
    end
    audit.forget_group(queue, group)
    groups.delete_keys(group)
    call("HDEL", queue.key .. ":gs", group.name)
    return 1
end

-- -- policy -------------------------------------------------------------------------------------------------------

-- Replace the policy if it is still the expected one. The caller has merged the changes.
function queues.declare(key, now, given)
    local queue = queues.ensure(key, now)
    if given.policy == nil or queue.stored == given.policy then
        return { 1, queue.stored }
    end
    if queue.stored ~= given.expected then
        return { 0, queue.stored }
    end
    local before, after = queue.policy, decoded(given.policy, queue.slots)
    if before.shards ~= after.shards and (before.ordered or after.ordered) and inspection.has_live(queue) then
        refuse("SHARDS_IN_USE", before.shards, after.shards)
    end
    if before.delivery ~= after.delivery then
        groups.recheck_expiry(queue)
    end
    call("HSET", key, "policy", given.policy)
    call("HINCRBY", key, "revision", 1)
    if before.primary_group ~= after.primary_group then
        local former = before.primary_group and groups.find(queue, before.primary_group)
        if former and not groups.is_used(queue, former) then
            groups.delete_keys(former)
            call("HDEL", queue.key .. ":gs", former.name)
        end
        call("HSET", key, "primary", after.primary_group and call("HEXISTS", key .. ":gs", after.primary_group) or 0)
    end
    return { 1, given.policy }
end

function groups.recheck_expiry(queue, group, since)
    for _, one in ipairs(group and { group } or groups.every(queue)) do
        call("HDEL", one.key, "checked:ex", "checked:dl")
        if one.expired_upto > (since or 0) then
            call("HSET", one.key, "expired_upto", whole(since or 0))
            one.expired_upto = since or 0
        end
    end
end

function groups.is_used(queue, group)
    return group.stream ~= nil or call("EXISTS", group.cursors, group.leases, group.tracked, group.letters,
        group.consumers, group.skips) > 0
end
