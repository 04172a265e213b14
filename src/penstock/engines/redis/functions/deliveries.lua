-- ready -> leased: receiving.
--
-- A receive first handles what is due, then fills up: best priority first, within a priority due retries before unread
-- messages. A lane that ever had messages with an expiry, a deadline, an address or a batch is read with checks.

local TOUCH_EVERY = 10 * 1000000
-- Messages that a checked lane is read by at a time.
local PIECE = 200

-- A row of the receipt: of a plain first attempt only what is its own.
local function row_of(queue, message, attempt, ends_at)
    if attempt == 1 and not (message.i or message.h or message.x or message.d or message.a or message.k or message.b
            or message.y or message.p) then
        return { message.position, message.c, optional(message.t), message.payload, ends_at }
    end
    return {
        message.position, message.c, optional(message.i), optional(message.t), optional(message.h), optional(message.x),
        optional(message.d), optional(message.a), optional(message.k), optional(message.b and batches.name_of(queue,
                message.b)),
        optional(message.y), message.payload, message.p or 0, attempt, ends_at,
    }
end

local function take_token(receive)
    if receive.token == 0 then
        local queue = receive.queue
        receive.token = token_given or max(queue.now, queue.token + 1, (receive.floor or 0) + 1)
        queue.token = max(queue.token, receive.token)
        call("HSET", queue.key, "token", whole(queue.token))
    end
    return receive.token
end

-- The consumer that the next row belongs to: a receive may be shared.
local function next_consumer(receive)
    while receive.taken >= receive.edge do
        receive.share = receive.share + 1
        receive.edge = receive.edge + receive.shares[receive.share][2]
    end
    return receive.shares[receive.share][1]
end

local function add_row(receive, row)
    receive.taken = receive.taken + 1
    receive.rows[receive.taken] = row
end

local function record(receive, first, last, attempt, consumer)
    audit.record(receive.queue, receive.group, {
        event = "receive", state = "leased", first = first, last = last, by = consumer, attempt = attempt,
        token = receive.token,
    })
end

-- Lease a retry; false when it ends instead, because its batch was cancelled.
local function take_retry(receive, position)
    local queue, group = receive.queue, receive.group
    local row = tracked.find(group, position)
    if groups.is_primary(queue, group) and batches.is_cancelled(queue, row.b) then
        batches.cancel_tracked(queue, group, position, row)
        receive.steps = receive.steps + 1
        return false
    end
    local message = log.at(queue, position)
    row.attempt = row.attempt + 1
    row.state, row.token, row.consumer = "leased", take_token(receive), next_consumer(receive)
    row.until_at = decisions.lease_end(row.x, row.d, queue.now, receive.lease_seconds)
    tracked.put(group, position, row)
    record(receive, position, position, row.attempt, row.consumer)
    message.x, message.d, message.b, message.p = row.x, row.d, row.b or message.b, row.p > 0 and row.p or nil
    add_row(receive, row_of(queue, message, row.attempt, row.until_at))
    return true
end

-- Collects positions that are leased together into ranges of one consumer.
local function ranges_of(receive, lane)
    local first, last, consumer
    local function flush()
        if first then
            leases.add(receive.group, first, last, take_token(receive), lane.name, consumer, receive.ends_at)
            record(receive, first, last, 1, consumer)
            first = nil
        end
    end
    local function add(position, own)
        if first and (position ~= last + 1 or own ~= consumer) then
            flush()
        end
        first, last, consumer = first or position, position, own
    end
    return add, flush
end

local function take_plain(receive, lane, room)
    local queue = receive.queue
    local add, flush = ranges_of(receive, lane)
    local upto, taken = lane.position, 0
    while taken < room do
        local runs = log.runs(queue, lane.name, upto, END, 100)
        if #runs == 0 then
            break
        end
        for _, run in ipairs(runs) do
            for _, message in ipairs(taken < room and log.read(queue, run[1], run[2], room - taken) or {}) do
                add(message.position, next_consumer(receive))
                add_row(receive, row_of(queue, message, 1, receive.ends_at))
                upto, taken = message.position, taken + 1
            end
        end
    end
    flush()
    cursors.move(receive.group, lane, upto, lane.passed + taken)
end

-- How an unread message has ended already, if it has.
local function ended_event(queue, message)
    if message.x and message.x <= queue.now then
        return "expire"
    elseif message.d and message.d <= queue.now and queues.at_most_once(queue) then
        return "deadline"
    elseif batches.is_cancelled(queue, message.b) then
        return "batch_cancel"
    end
end
deliveries.ended_event = ended_event

function deliveries.end_skipped(queue, group, message, event, lane)
    outcomes.finish(queue, group, {
        event = event, state = event == "batch_cancel" and "cancelled" or "expired", first = message.position,
        last = message.position, by = "system", reason = REASONS[event], attempt = 0,
    }, lane, groups.is_primary(queue, group))
end

local function lease_one(receive, lane, message, add)
    local ends_at = decisions.lease_end(message.x, message.d, receive.queue.now, receive.lease_seconds)
    local consumer = next_consumer(receive)
    if ends_at == receive.ends_at then
        add(message.position, consumer)
    else
        local token = take_token(receive)
        tracked.put(receive.group, message.position, {
            lane = lane.name, p = lane.priority, s = lane.shard, state = "leased", attempt = 1, until_at = ends_at,
            x = message.x, d = message.d, b = message.b, token = token, consumer = consumer,
        })
        record(receive, message.position, message.position, 1, consumer)
    end
    add_row(receive, row_of(receive.queue, message, 1, ends_at))
end

local function take_checked(receive, lane, room)
    local queue, group = receive.queue, receive.group
    local add, flush = ranges_of(receive, lane)
    local upto, taken, passed = lane.position, 0, 0
    while taken < room and receive.steps < STEPS do
        local run = log.runs(queue, lane.name, upto, END, 1)[1]
        if not run then
            break
        end
        for _, message in ipairs(log.read(queue, run[1], run[2], min(PIECE, room - taken))) do
            if cursors.is_skipped(group, message.position) then
                call("ZREM", group.skips, whole(message.position))
                receive.steps = receive.steps + 1
            else
                local event = ended_event(queue, message)
                if event then
                    deliveries.end_skipped(queue, group, message, event, lane.name)
                    receive.steps = receive.steps + 1
                else
                    lease_one(receive, lane, message, add)
                    taken = taken + 1
                end
            end
            upto, passed = message.position, passed + 1
        end
    end
    flush()
    cursors.move(group, lane, upto, lane.passed + passed)
end

local function take_unread(receive, lane, most)
    local room = min(most, receive.limit - receive.taken)
    if lane.is_checked or receive.has_skips then
        take_checked(receive, lane, room)
    else
        take_plain(receive, lane, room)
    end
end

-- Best priority first; within a priority the consumer's own shards first, then the following ones.
local function ring(receive, lanes)
    local shards = receive.queue.policy.shards
    if shards == 1 or #lanes < 2 then
        return lanes
    end
    local birth, living = consumers.place(receive.group, receive.shares[1][1])
    if not birth then
        birth, living = floor(chance * shards), 1
    end
    local function place(lane)
        local away = lane.shard % living == birth % living and 0 or shards
        return lane.priority, away + (lane.shard - birth) % shards
    end
    table.sort(lanes, function(one, other)
        local priority, at = place(one)
        local other_priority, other_at = place(other)
        if priority ~= other_priority then
            return priority < other_priority
        end
        return at < other_at
    end)
    return lanes
end

local function fill(receive)
    local lanes = ring(receive, cursors.unread(receive.queue, receive.group))
    local worst = receive.priority or END
    local retries, next_retry = tracked.ready(receive.group, receive.limit), 1
    local function take_retries(priority)
        while retries[next_retry] and retries[next_retry][2] <= min(priority, worst)
                and receive.taken < receive.limit do
            if take_retry(receive, retries[next_retry][1]) then
                next_retry = next_retry + 1
            else
                retries, next_retry = tracked.ready(receive.group, receive.limit), 1
            end
        end
    end
    for _, lane in ipairs(lanes) do
        take_retries(lane.priority)
        if receive.taken >= receive.limit or lane.priority > worst then
            return
        end
        take_unread(receive, lane, receive.limit)
        if receive.steps >= STEPS then
            return
        end
    end
    take_retries(END)
end

-- Whether a lane has an unread message that has not ended before a position.
local function is_unread_before(receive, lane, position)
    local upto = lane.position
    while true do
        local run = log.runs(receive.queue, lane.name, upto, position - 1, 1)[1]
        if not run then
            return false
        end
        for _, message in ipairs(log.read(receive.queue, run[1], run[2], PIECE)) do
            if not cursors.is_skipped(receive.group, message.position) and not ended_event(receive.queue, message) then
                return true
            end
            upto = message.position
        end
    end
end

-- Shards of an ordered queue that have a message in flight.
function deliveries.blocked_shards(queue, group)
    local blocked = {}
    for _, lease in ipairs(leases.between(group, 0, END)) do
        blocked[log.lane(queue, lease.lane).shard] = true
    end
    for _, member in ipairs(call("ZRANGE", group.tracked .. "l", 0, -1)) do
        blocked[tracked.find(group, tonumber(member)).s] = true
    end
    return blocked
end

-- The retries of each shard in the order in which they come again; each has its turn.
local function retries_in_order(group, turns)
    local waiting = {}
    local found = {}
    for _, one in ipairs(tracked.every(group)) do
        local position, row = one[1], one[2]
        if row.state ~= "leased" then
            found[#found + 1] = { row.p, position, row.state, row.s }
            turns[#turns + 1] = { row.p, 0, position, row.s }
        end
    end
    sort_by(found, 1, 2)
    for _, one in ipairs(found) do
        waiting[one[4]] = waiting[one[4]] or {}
        table.insert(waiting[one[4]], one)
    end
    return waiting
end

-- At most one open lease per shard, in order of priority and position. Retries precede what was never handed out,
-- whatever its priority, and block their shard while the first of them waits.
local function fill_in_order(receive)
    local queue, group = receive.queue, receive.group
    -- Messages behind a failed one are released, which an at_most_once message must not be: lease one at a time.
    local most = queues.at_most_once(queue) and 1 or receive.limit
    local blocked, passed, turns = deliveries.blocked_shards(queue, group), {}, {}
    local waiting = retries_in_order(group, turns)
    for place, lane in ipairs(ring(receive, cursors.unread(queue, group))) do
        turns[#turns + 1] = { lane.priority, 1, place, lane.shard, lane }
    end
    sort_by(turns, 1, 2, 3)
    for _, turn in ipairs(turns) do
        local priority, position, shard, lane = turn[1], turn[3], turn[4], turn[5]
        local retries = waiting[shard]
        local has_retries = retries and #retries > 0
        if priority <= (receive.priority or END) and not blocked[shard] and receive.taken < receive.limit and receive.steps < STEPS then
            local is_taken = false
            if lane and not has_retries then
                -- What a better priority has waits for the retries, and must not be overtaken meanwhile.
                is_taken = not passed[shard]
                if is_taken then
                    take_unread(receive, lane, most)
                end
            elseif lane and priority <= retries[1][1] and is_unread_before(receive, lane, retries[1][2]) then
                -- A message that was redriven before it was read waits further on; what comes before it is not blocked.
                take_unread(receive, lane, 1)
                blocked[shard] = true
            elseif lane then
                passed[shard] = passed[shard] or is_unread_before(receive, lane, END)
            elseif has_retries and retries[1][2] == position and retries[1][3] == "ready" then
                is_taken = take_retry(receive, position)
                table.remove(retries, 1)
            end
            if is_taken and most == 1 then
                blocked[shard] = true
            end
        end
    end
end

-- -- verbs --------------------------------------------------------------------------------------------------------

local function begin(queue, group, shares, lease_seconds)
    local limit = 0
    for _, share in ipairs(shares) do
        limit = limit + share[2]
    end
    lease_seconds = lease_seconds or queue.policy.lease_seconds
    return {
        queue = queue, group = group, shares = shares, limit = limit, lease_seconds = lease_seconds,
        ends_at = queue.now + microseconds(lease_seconds), token = 0, rows = {}, taken = 0, share = 0, edge = 0, steps = 0,
        has_skips = call("EXISTS", group.skips) == 1,
    }
end

-- Handle what is due in the group; return whether that was all. A message that is ready must not wait for a worse one.
local function prepare(queue, group)
    local left = STEPS - promotion.promote(queue, STEPS)
    for _, handle in ipairs({ promotion.make_ready, lapsed.reclaim, lapsed.expire_tracked }) do
        left = left > 0 and left - handle(queue, group, left) or 0
    end
    return left > 0
end

-- The token and the rows; and whether there may be more, because the call met too many messages that had ended.
local function receive_for(queue, group, shares, given)
    local receive = begin(queue, group, shares, given.lease_seconds)
    receive.priority, receive.floor = given.priority, given.floor
    if not queue.policy.paused then
        if queue.policy.ordered then
            fill_in_order(receive)
        else
            fill(receive)
        end
        if queue.now - group.used_at > TOUCH_EVERY then
            group.used_at = queue.now
            call("HSET", group.key, "used_at", whole(queue.now))
        end
    end
    return { receive.token, receive.rows }, receive.taken == 0 and receive.steps >= STEPS
end

-- Receive for one consumer or several. In an ordered queue each consumer gets its own receive, because a lease may hold
-- several messages of one key. Without rows the caller is to call again.
function deliveries.receive(key, now, given)
    local name = given.group
    if given.needs_group then
        local queue = queues.get(key, now)
        groups.get(queue, name or queues.default_group(queue))
    end
    local queue = queues.ensure(key, now)
    name = name or queues.default_group(queue)
    shards.check_group(queue, name)
    local group = groups.ensure_leasing(queue, name)
    for _, share in ipairs(given.shares) do
        if call("HEXISTS", group.removed_consumers, share[1]) == 1 then
            refuse("CONSUMER_REMOVED", share[1])
        end
    end
    if not shards.may_continue(queue, given) then
        return { group.name, queue.salt, { { 0, {} } } }
    end
    if not queue.policy.paused and not prepare(queue, group) then
        return { group.name, queue.salt, false }
    end
    if given.probe then
        return { group.name, queue.salt, shards.ready_priorities(queue, group) }
    end
    local found, has_more = {}, true
    for i, share in ipairs(queue.policy.ordered and given.shares or { given.shares }) do
        local is_cut
        found[i], is_cut = receive_for(queue, group, queue.policy.ordered and { share } or share, given)
        has_more = has_more and is_cut
    end
    return { group.name, queue.salt, not has_more and found }
end

-- Receive messages that are ready, by position.
function deliveries.receive_again(queue, group, consumer, positions, lease_seconds)
    local receive = begin(queue, group, { { consumer, #positions } }, lease_seconds)
    for _, position in ipairs(positions) do
        take_retry(receive, position)
    end
    return { receive.token, receive.rows }
end
