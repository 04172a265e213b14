-- Read-only queries: single messages, what comes next, the audit of a message, and what has ended.

-- A message as the caller reads it; held ones have no position.
function inspection.row(queue, message)
    return {
        optional(message.position), message.p or 0, message.c, log.id_of(queue, message), optional(message.t),
        optional(message.h), optional(message.x), optional(message.d), optional(message.a), optional(message.k),
        optional(message.b and batches.name_of(queue, message.b)), optional(message.y), optional(message.v),
                message.payload,
    }
end

-- The position of a message, or nil and its number among the held ones.
function inspection.position(queue, id)
    local position, number = log.locate(queue, id)
    if not position and not number then
        refuse("NO_MESSAGE", id)
    end
    return position, number
end

function inspection.found(queue, id)
    local position, number = inspection.position(queue, id)
    if position then
        return log.at(queue, position)
    end
    local message = held.find(queue, number)
    message.payload = held.payload(queue, number)
    return message
end

function inspection.find(key, now, given)
    local queue = queues.get(key, now)
    return inspection.row(queue, inspection.found(queue, given.id))
end

function inspection.position_of(key, now, given)
    return inspection.position(queues.get(key, now), given.id) or false
end

-- -- what comes next ----------------------------------------------------------------------------------------------

-- Whether time would end the message before it is delivered.
local function is_over(queue, expires_at, deadline_at)
    return expires_at and expires_at <= queue.now
        or deadline_at and deadline_at <= queue.now and queues.at_most_once(queue)
end

-- Unread messages of a lane that can be delivered, after a position.
function inspection.unread_in(queue, group, lane, after, limit)
    local found, upto = {}, after
    while #found < limit do
        local run = log.runs(queue, lane.name, upto, END, 1)[1]
        if not run then
            break
        end
        for _, message in ipairs(log.read(queue, run[1], run[2], min(1000, limit))) do
            upto = message.position
            local is_skipped = group and cursors.is_skipped(group, upto)
            if #found < limit and not is_skipped and not deliveries.ended_event(queue, message) then
                found[#found + 1] = message
            end
        end
    end
    return found
end

-- Lapsed leases that the next receive would deliver again, with priority and shard.
local function candidates(queue, group)
    local found = {}
    for _, one in ipairs(group and tracked.every(group) or {}) do
        local position, row = one[1], one[2]
        local is_due = row.state == "ready" or row.until_at <= queue.now
        if is_due and not is_over(queue, row.x, row.d) and (row.state ~= "leased"
                or decisions.has_retries(queue.policy, row.attempt)
                and not queues.at_most_once(queue)) then
            found[#found + 1] = { row.p, 0, position, row.s }
        end
    end
    for _, lease in ipairs(group and not queues.at_most_once(queue) and leases.lapsed(group, queue.now) or {}) do
        for position = lease.first, lease.last do
            local flight = leases.flight_in(queue, lease, position)
            if not is_over(queue, flight.expires_at, nil) and decisions.has_retries(queue.policy, 1) then
                found[#found + 1] = { flight.priority, 0, position, flight.shard }
            end
        end
    end
    return found
end

-- What blocks shards of an ordered queue, as priority and position: everything while a message is in flight, else what
-- comes behind a message that waits for a retry.
local function busy_shards(queue, group)
    local busy = {}
    for _, lease in ipairs(leases.between(group, 0, END)) do
        if lease.ends_at > queue.now then
            busy[log.lane(queue, lease.lane).shard] = { -1, 0 }
        end
    end
    for _, one in ipairs(tracked.every(group)) do
        local row = one[2]
        if row.state ~= "ready" and row.until_at > queue.now then
            local before = busy[row.s]
            local from = row.state == "leased" and { -1, 0 } or { row.p, one[1] }
            if not before or from[1] < before[1] or from[1] == before[1] and from[2] < before[2] then
                busy[row.s] = from
            end
        end
    end
    return busy
end

-- Whether a candidate waits for another message of its shard.
local function is_behind(candidate, waits)
    local priority, is_unread, position = candidate[1], candidate[2] == 1, candidate[3]
    if not waits then
        return false
    elseif is_unread then
        return priority > waits[1] or position >= waits[2]
    end
    return priority > waits[1] or priority == waits[1] and position >= waits[2]
end

function inspection.peek(key, now, given)
    local queue = queues.find(key, now)
    if not queue then
        return {}
    end
    local group = groups.find(queue, given.group)
    local found = candidates(queue, group)
    for _, lane in ipairs(cursors.unread(queue, group)) do
        for _, message in ipairs(inspection.unread_in(queue, group, lane, lane.position, given.limit)) do
            found[#found + 1] = { lane.priority, 1, message.position, lane.shard }
        end
    end
    sort_by(found, 1, 2, 3)
    local busy = queue.policy.ordered and group and busy_shards(queue, group) or {}
    local rows = {}
    for _, one in ipairs(found) do
        if #rows < given.limit and not is_behind(one, busy[one[4]]) then
            rows[#rows + 1] = inspection.row(queue, log.at(queue, one[3]))
        end
    end
    return rows
end

-- Messages of the log that were not withdrawn, with after < position <= upto, in order or backwards.
function inspection.between(queue, after, upto, limit, backwards)
    local found, first, last = {}, max(after, queue.trimmed) + 1, min(upto or END, queue.last)
    while #found < limit and first <= last do
        local rows = backwards and log.read_backwards(queue, last, first, min(1000, limit)) or log.read(queue, first,
                last, min(1000, limit))
        for _, message in ipairs(rows) do
            if backwards then
                last = message.position - 1
            else
                first = message.position + 1
            end
            if not message.w and #found < limit then
                found[#found + 1] = message
            end
        end
        if #rows == 0 then
            break
        end
    end
    return found
end

function inspection.browse(key, now, given)
    local queue = queues.find(key, now)
    local rows = queue and inspection.between(queue, given.after, given.upto, given.limit, given.backwards) or {}
    for i = 1, #rows do
        rows[i] = inspection.row(queue, rows[i])
    end
    return rows
end

-- Microseconds until a receive could return something; nil for not before the next commit.
function inspection.ready_in(key, now, given)
    local queue = queues.find(key, now)
    if not queue or queue.policy.paused then
        return false
    end
    local group = groups.find(queue, given.group or queues.default_group(queue))
    local blocked = group and queue.policy.ordered and deliveries.blocked_shards(queue, group) or {}
    if group and queue.policy.ordered then
        for _, one in ipairs(tracked.every(group)) do
            if one[2].state == "held" then
                blocked[one[2].s] = true
            end
        end
    end
    for _, lane in ipairs(cursors.unread(queue, group)) do
        if not blocked[lane.shard] then
            return 0
        end
    end
    for _, one in ipairs(group and tracked.ready(group, 1000) or {}) do
        if not queue.policy.ordered or not blocked[tracked.find(group, one[1]).s] then
            return 0
        end
    end
    local due_at = END
    local sets = { queue.key .. ":hd" }
    if group then
        sets = { queue.key .. ":hd", group.tracked .. "d", group.tracked .. "l", group.lease_ends }
    end
    for _, set in ipairs(sets) do
        local first = call("ZRANGE", set, 0, 0, "WITHSCORES")
        due_at = first[2] and min(due_at, tonumber(first[2])) or due_at
    end
    return due_at < END and max(0, due_at - now)
end

-- -- states -------------------------------------------------------------------------------------------------------

function inspection.audit(key, now, given)
    local queue = queues.get(key, now)
    local message = inspection.found(queue, given.id)
    local was_held = not message.position or message.v or message.w
    local found = { { message.c, "send", was_held and "held" or "ready", message.y or "system", false, false, 0 } }
    for _, entry in ipairs(message.position and audit.entries(queue, message.position) or {}) do
        found[#found + 1] = { entry.a, entry.e, entry.s, entry.b or "system", optional(entry.n), optional(entry.r),
                entry.t or 0 }
    end
    return found
end

function inspection.states(key, now, given)
    local queue = queues.get(key, now)
    local group = groups.find(queue, given.group)
    local found = {}
    for place, id in ipairs(given.ids) do
        local position, number = log.locate(queue, id)
        local last = position and audit.last(queue, group, position)
        if last then
            found[place] = { last.s, optional(last.r) }
        elseif position then
            local message = log.at(queue, position)
            found[place] = { (message.v or message.w) and "held" or "ready", false }
        else
            found[place] = number and { "held", false } or false
        end
    end
    return found
end

-- Messages that have ended in the group, latest position first.
function inspection.archive(key, now, given)
    local queue = queues.find(key, now)
    local group = queue and groups.find(queue, given.group)
    if not group then
        return {}
    end
    local edge = 0
    for _, lane in ipairs(log.lanes(queue)) do
        edge = max(edge, cursors.position(queue, group, lane.name))
    end
    for _, set in ipairs({ group.skips, queue.key .. ":wz" }) do
        local last = call("ZREVRANGE", set, 0, 0, "WITHSCORES")
        edge = max(edge, tonumber(last[2] or 0))
    end
    local rows = {}
    edge = given.before and min(edge, given.before - 1) or edge
    local function add(message)
        local last = #rows < given.limit and audit.last(queue, group, message.position)
        if last and not LIVE[last.s] and (not given.outcome or last.s == given.outcome) then
            rows[#rows + 1] = { inspection.row(queue, message), last.s, optional(last.r), last.t or 0, last.a }
        end
    end
    while #rows < given.limit and edge > queue.trimmed do
        local found = log.read_backwards(queue, edge, queue.trimmed + 1, min(1000, given.limit))
        for _, message in ipairs(found) do
            add(message)
            edge = message.position - 1
        end
        edge = #found > 0 and edge or queue.trimmed
    end
    local upto = given.before and "(" .. whole(given.before) or "+inf"
    for _, member in ipairs(#rows < given.limit and call("ZREVRANGEBYSCORE", queue.key .. ":kz", upto, "-inf") or {}) do
        add(log.at(queue, tonumber(member)))
    end
    return rows
end

-- The facts from which `domain.explain` says why a message is not running.
function inspection.situation(key, now, given)
    local queue = queues.get(key, now)
    local position, number = inspection.position(queue, given.id)
    local facts = { now = now, state = "ready" }
    local function answer()
        return {
            now, facts.state, optional(facts.reason), optional(facts.attempt), facts.until_at or 0,
                    optional(facts.consumer),
            optional(facts.batch), optional(facts.position), facts.no_group and 0 or 1, facts.is_stream and 1 or 0,
            facts.is_dead_letter and 1 or 0, facts.is_passed and 1 or 0, facts.is_blocked and 1 or 0,
            facts.is_paused and 1 or 0, facts.lag or 0, facts.consumers or 0,
        }
    end
    if number then
        local message = held.find(queue, number)
        facts.state, facts.until_at, facts.batch = "held", message.v, message.o and message.b and message.b.l or nil
        return answer()
    end
    local group = groups.find(queue, given.group)
    if not group or group.stream then
        facts.no_group, facts.is_stream = not group, group ~= nil
        return answer()
    end
    local last = audit.last(queue, group, position)
    if last and not LIVE[last.s] then
        facts.state, facts.reason, facts.is_dead_letter = last.s, last.r, letters.find(group, position) ~= nil
        return answer()
    end
    local row, lease = tracked.find(group, position), leases.at(group, position)
    if row and row.state ~= "ready" then
        facts.state, facts.attempt, facts.until_at, facts.consumer, facts.reason = row.state, row.attempt,
                row.until_at, row.consumer, row.reason
    elseif lease and not row then
        facts.state, facts.attempt, facts.until_at, facts.consumer = "leased", 1, lease.ends_at, lease.consumer
    else
        local counts = inspection.group_counts(queue, group)
        facts.position, facts.attempt, facts.reason = position, row and row.attempt, row and row.reason
        facts.is_passed = not row and position <= cursors.position(queue, group, log.lane_of(log.at(queue, position)))
        facts.is_blocked = queue.policy.ordered and next(deliveries.blocked_shards(queue, group)) ~= nil
        facts.is_paused, facts.lag, facts.consumers = queue.policy.paused, counts.unread - counts.skipped,
                counts.consumers
    end
    return answer()
end

-- -- leases -------------------------------------------------------------------------------------------------------

local function lease_row(queue, position, token, consumer, attempt, ends_at)
    local message = log.at(queue, position)
    return { log.id_of(queue, message), position, token, consumer, attempt, message.c, min(token, queue.now), ends_at }
end

-- Messages in flight, in log order: of given ids, or of a consumer after a position.
function inspection.leases(key, now, given)
    local queue = queues.find(key, now)
    local group = queue and groups.find(queue, given.group)
    local found = {}
    if not group then
        return found
    end
    local function add(position)
        local lease, row = leases.at(group, position), tracked.find(group, position)
        local ends_at = lease and lease.ends_at or row and row.state == "leased" and row.until_at
        local holder = lease and { lease.token, lease.consumer, 1 } or row and { row.token, row.consumer, row.attempt }
        if ends_at and ends_at > now and (not given.consumer or holder[2] == given.consumer) then
            found[#found + 1] = lease_row(queue, position, holder[1], holder[2], holder[3], ends_at)
        end
    end
    if given.ids then
        for _, id in ipairs(given.ids) do
            local position = log.locate(queue, id)
            if position then
                add(position)
            end
        end
        return found
    end
    local positions = {}
    for _, lease in ipairs(leases.between(group, given.after + 1, END)) do
        for position = max(lease.first, given.after + 1), min(lease.last, lease.first + given.limit + given.after) do
            positions[#positions + 1] = position
        end
    end
    for _, position in ipairs(tracked.upto(group, "l", END)) do
        if position > given.after then
            positions[#positions + 1] = position
        end
    end
    table.sort(positions)
    for _, position in ipairs(positions) do
        if #found < given.limit then
            add(position)
        end
    end
    return found
end
