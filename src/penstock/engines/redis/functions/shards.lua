-- Shards: a queue of a cluster may be spread over several slots, one for each shard, and so over nodes. Each shard is
-- stored like a queue of its own: log, groups, leases, audit, counts. The key of shard 0 is the key of the queue. It says
-- over how many slots the queue is spread, and has the policy; the other shards have copies.
--
-- Every call says over how many slots its caller believes the queue to be spread, and is refused if that is wrong, so that
-- a caller learns of it before anything is written.
--
-- A position outside is the position in the shard times 1024, plus the shard. So positions of all shards are comparable,
-- and differ. A reader that needs to know that nothing can appear up to a position moves every shard forward (fence).

-- The number of a position outside the shard.
function shards.outer(queue, position)
    return queue.slots > 0 and position * MAX_SHARDS + queue.shard or position
end

-- The position in the shard, if that is where it belongs.
function shards.inner(queue, position)
    if queue.slots == 0 or not position then
        return position
    end
    return position % MAX_SHARDS == queue.shard and floor(position / MAX_SHARDS) or nil
end

-- Name a shard as callers do: shard, number of slots, name of the queue.
function shards.identify(queue)
    if queue.slots > 0 then
        queue.base = queue.name:match("^%d+%.%d+\n(.*)$") or queue.name
        queue.name = whole(queue.shard) .. "/" .. whole(queue.slots) .. "\n" .. queue.base
    end
    if queue.key == called_key and queue.slots ~= slots_given then
        refuse("SLOTS")
    end
end

function shards.queue_name(queue)
    return queue.base or queue.name
end

-- A shard is created before the queue is spread, never by a call to it.
function shards.check_absent(key)
    if key == called_key and slots_given > 0 then
        refuse("SLOTS")
    end
end

-- The queue, or nothing where there is none. An absent shard of a queue that is spread has not "nothing to do": the queue
-- is elsewhere, and the caller has to look where.
function shards.find(key, now)
    local queue = queues.find(key, now)
    if not queue then
        shards.check_absent(key)
    end
    return queue
end

-- The caller has chosen the shard of each message: by key if it believes the queue to be ordered.
function shards.check_order(queue, given)
    if queue.slots > 0 and (given.ordered or false) ~= queue.policy.ordered then
        refuse("SLOTS")
    end
end

-- -- spreading a queue --------------------------------------------------------------------------------------------

local function is_fresh(queue)
    return queue.slots == 0 and removal.count(queue) == 0
        and call("EXISTS", queue.key .. ":gs", queue.key .. ":b", queue.key .. ":sg", queue.key .. ":jn") == 0
end

-- Whether the queue has never been used, and what its shards are created with.
function shards.plan(key, now)
    local queue = queues.get(key, now)
    return { is_fresh(queue) and 1 or 0, queue.generation + 1, queue.last, queue.entry, queue.salt, queue.stored }
end

-- Create a shard, or create it anew if an earlier queue of the name left it behind. Shards of one generation are the
-- same, whoever creates them.
function shards.open(key, now, given)
    local generation = tonumber(call("HGET", key, "generation") or 0)
    if generation > given.generation then
        refuse("SHARD_STALE")
    elseif generation == given.generation then
        return 0
    end
    if call("HEXISTS", key, "policy") == 1 then
        slots_given = tonumber(call("HGET", key, "slots") or 0)
        removal.delete_queue(queues.get(key, now))
        opened[key] = nil
    end
    queues.check_creation(key)
    local last = max(given.last, tonumber(call("HGET", key, "last") or 0))
    local entry = max(given.entry, tonumber(call("HGET", key, "entry") or 0))
    call("HSET", key, "policy", given.policy, "created_at", whole(now), "salt", given.salt, "last", whole(last),
        "entry", whole(entry), "trimmed", whole(last), "trimmed_entry", whole(entry), "slots", given.slots, "shard",
        given.shard, "generation", given.generation)
    return 1
end

-- Spread the queue, whose other shards have been created, unless it was used or spread meanwhile.
function shards.commit(key, now, given)
    local queue = queues.get(key, now)
    if not is_fresh(queue) or queue.generation + 1 ~= given.generation or queue.stored ~= given.expected then
        return 0
    end
    call("HSET", key, "policy", given.policy, "slots", given.count, "shard", 0, "generation", given.generation)
    call("HDEL", key, "deleted_slots")
    return 1
end

-- Copy the policy of the queue to a shard. A copy that arrives late changes nothing.
function shards.set_policy(key, now, given)
    local queue = queues.get(key, now)
    if queue.stored ~= given.policy and tonumber(call("HGET", key, "revision") or 0) < given.revision then
        queues.declare(key, now, { policy = given.policy, expected = queue.stored })
        call("HSET", key, "revision", given.revision)
    end
    return 1
end

-- Delete a shard of a queue that was deleted, unless it belongs to a later one.
function shards.delete(key, now, given)
    local found = call("HMGET", key, "policy", "generation", "slots")
    if not found[1] or tonumber(found[2] or 0) > given.generation then
        return 0
    end
    slots_given = tonumber(found[3] or 0)
    return removal.delete_queue(queues.get(key, now))
end

-- -- calls of a spread queue ----------------------------------------------------------------------------------------

function shards.ensure_group(key, now, given)
    local queue = queues.get(key, now)
    return groups.ensure_leasing(queue, given.group).name
end

-- A group is created in all shards, never by a receive from one: the others would trim what it has not read.
function shards.check_group(queue, name)
    if queue.slots > 0 and not groups.find(queue, name) then
        refuse("SLOTS")
    end
end

-- From now on messages may have different priorities, so a receive asks all shards before it takes messages of one.
function shards.mix(key, now)
    local queue = queues.get(key, now)
    call("HSET", queue.key, "mixed", 1)
    return 1
end

-- Whether a receive may take messages here. One that goes on from another shard keeps its token, if that is newer than
-- every token of this shard: a token must not be given to a message twice. It may come back (`again`) for messages of
-- another priority.
function shards.may_continue(queue, given)
    if queue.slots > 0 and (given.mixed or false) ~= (queue.mixed == 1) then
        refuse("SLOTS")
    end
    return not token_given or given.again or token_given > queue.token
end

-- The priorities of messages that a receive could take.
function shards.ready_priorities(queue, group)
    local found, known = {}, {}
    local function add(priority)
        if not known[priority] then
            known[priority] = true
            found[#found + 1] = priority
        end
    end
    if queue.policy.paused then
        return found
    end
    for _, lane in ipairs(cursors.unread(queue, group)) do
        add(lane.priority)
    end
    for _, one in ipairs(tracked.ready(group, STEPS)) do
        add(one[2])
    end
    return found
end

-- Refuse drafts that a send would refuse, where it is not the only call of the sender.
function shards.check_send(key, now, given, args)
    local queue = queues.get(key, now)
    shards.check_order(queue, given)
    messages.check(queue, messages.drafts(given, args, 3), given.is_checked, {})
    return 1
end

-- For each id whether the shard has the message.
function shards.known_ids(key, now, given)
    local queue = queues.find(key, now)
    local found = {}
    for place, id in ipairs(given.ids) do
        found[place] = queue and messages.exists(queue, id) and 1 or 0
    end
    return found
end

-- Give out no position up to this one any more; return the last one given out, or skipped.
function shards.fence(key, now, given)
    local queue = queues.get(key, now)
    if given.last > queue.last then
        queue.last = given.last
        call("HSET", key, "last", whole(given.last))
    end
    return queue.last
end
