-- Retention: finished messages are trimmed when their history has ended, and not before; and the sweep of a queue.
--
-- A sweep records up to where every message is finished (a mark: a sorted set by time). When a mark is as old as
-- `history_seconds`, the log is trimmed up to it. Dead letters and retries keep their message and its audit.

local MARKS_PER_HISTORY = 100
-- Messages that one call trims.
local AT_ONCE = 2 * STEPS
local LOOK_BACK = 60 * 1000000

-- Groups that hold back trimming: those used recently, and always the primary group.
function retention.active(queue, policy)
    local idle_since = queue.now - microseconds(policy.group_idle_seconds)
    local found = {}
    for _, group in ipairs(groups.every(queue)) do
        if group.used_at > idle_since or group.name == policy.primary_group then
            found[#found + 1] = group
        end
    end
    return found
end

-- The position up to which a stream group has read everything: the messages, or their audit so far.
local function passed_position(queue, group)
    if group.table == "messages" then
        return group.stream
    end
    local after, first = group.stream, END
    repeat
        local rows = audit.between(queue, after, END, 1000)
        for _, entry in ipairs(rows) do
            after = entry.number
            if entry.l > queue.trimmed then
                first = min(first, entry.f)
            end
        end
    until #rows == 0
    return first - 1
end

-- The first position that is not finished in a group.
local function first_unfinished(queue, group)
    local first = cursors.first_unread(queue, group) or END
    local lease = leases.first(group)
    return min(first, lease and lease.first or END, tracked.first(group) or END)
end

local function finished_position(queue, readers)
    local last = queue.last
    for _, group in ipairs(readers) do
        last = min(last, group.stream and passed_position(queue, group) or first_unfinished(queue, group) - 1)
    end
    return last
end

local function first_unexpired(queue, after)
    local upto = after
    repeat
        local rows = log.read(queue, upto + 1, END, 1000)
        for _, message in ipairs(rows) do
            upto = message.position
            if not message.w and (not message.x or message.x > queue.now) then
                return upto
            end
        end
    until #rows == 0
end

-- Record up to where every message is finished now, unless that was done recently.
local function mark(queue)
    local marks = queue.key .. ":mk"
    local latest = call("ZREVRANGE", marks, 0, 0, "WITHSCORES")
    local apart = floor(microseconds(queue.policy.history_seconds) / MARKS_PER_HISTORY)
    if latest[1] and queue.now - tonumber(latest[2]) < apart then
        return
    end
    local known = max(tonumber(latest[1] or 0), queue.trimmed)
    local readers = retention.active(queue, queue.policy)
    local finished = finished_position(queue, readers)
    if not queue.policy.primary_group or #readers == 0 then
        -- A new group may still want any message, so it is finished only when it expires.
        local unexpired = first_unexpired(queue, known)
        finished = unexpired and min(finished, unexpired - 1) or finished
    end
    if finished > known then
        call("ZADD", marks, whole(queue.now), whole(finished))
    end
end

-- Trim part of what may be removed; return how many messages, and whether there is more.
function retention.trim(queue)
    mark(queue)
    local before = queue.now - microseconds(queue.policy.history_seconds)
    local marked = 0
    for _, member in ipairs(call("ZRANGEBYSCORE", queue.key .. ":mk", "-inf", whole(before))) do
        marked = max(marked, tonumber(member))
    end
    if marked <= queue.trimmed then
        return 0, false
    end
    -- A message that was finished then may be live again, after a seek back or a redrive.
    local upto = min(marked, finished_position(queue, retention.active(queue, queue.policy)))
    if upto <= queue.trimmed then
        return 0, false
    end
    local piece = retention.piece(queue, upto)
    return retention.trim_to(queue, piece), piece < upto
end

-- The end of the part that one call trims; other calls wait for it.
function retention.piece(queue, upto)
    local first = log.read(queue, 0, END, 1)[1]
    return first and min(upto, first.position + AT_ONCE - 1) or upto
end

local function record_idle_groups(queue, upto)
    for _, group in ipairs(groups.every(queue)) do
        local is_passed = false
        for _, lane in ipairs(log.lanes(queue)) do
            local position = tonumber(call("HGET", group.cursors, lane.name) or END)
            is_passed = is_passed or position < upto and lane.last > position
        end
        if is_passed then
            audit.record(queue, group, {
                event = "seek", state = "cancelled", first = 0, last = 0, by = "system",
                reason = filled(REASONS.trimmed_unread, group.name, whole(upto)), attempt = 0,
            })
        end
    end
end

-- Whether a dead letter or a retry of a group keeps the message.
local function is_kept(every, position)
    for _, group in ipairs(every) do
        if call("HEXISTS", group.letters, whole(position)) == 1 or call("HEXISTS", group.tracked,
                whole(position)) == 1 then
            return true
        end
    end
    return false
end

-- Delete the chosen id and the ended address of a message that is gone.
function retention.forget(queue, message)
    if message.i then
        call("HDEL", queue.key .. ":id", message.i)
    end
    local row = message.a and addresses.find(queue, message.a)
    if row and row.e and row.o == message.position then
        call("HDEL", queue.key .. ":ad", message.a)
    end
end

function retention.trim_to(queue, upto)
    local first, trimmed = queue.trimmed + 1, 0
    windows.keep_last(queue, upto)
    record_idle_groups(queue, upto)
    local every, from = groups.every(queue), 0
    repeat
        local rows = from <= upto and log.read(queue, from, upto, 1000) or {}
        for _, message in ipairs(rows) do
            from = message.position + 1
            log.drop_times(queue, message.position, message)
            local position = whole(message.position)
            if is_kept(every, message.position) then
                local payload = message.payload
                message.payload, message.position = nil, nil
                call("HSET", queue.key .. ":kp", "m" .. position, pack(message), "p" .. position, payload)
                call("ZADD", queue.key .. ":kz", position, position)
            else
                retention.forget(queue, message)
                trimmed = trimmed + 1
            end
        end
    until #rows == 0
    call("XTRIM", queue.key .. ":log", "MINID", whole(upto + 1) .. "-0")
    for _, lane in ipairs(log.lanes(queue)) do
        retention.trim_lane(queue, lane.name, upto)
    end
    retention.trim_lane(queue, "w", upto)
    call("ZREMRANGEBYSCORE", queue.key .. ":wz", "-inf", whole(upto))
    queue.trimmed, queue.lanes = upto, nil
    call("HSET", queue.key, "trimmed", whole(upto))
    retention.trim_cursors(queue, upto)
    for _, member in ipairs(call("ZRANGE", queue.key .. ":mk", 0, -1)) do
        if tonumber(member) <= upto then
            call("ZREM", queue.key .. ":mk", member)
        end
    end
    audit.trim(queue, first, upto)
    windows.drop_removed(queue, upto)
    return trimmed
end

-- Cut the runs of a lane, and count what was cut.
function retention.trim_lane(queue, lane, upto)
    local runs, count = queue.key .. ":r" .. lane, 0
    for _, run in ipairs(log.runs(queue, lane, 0, upto)) do
        count = count + run[2] - run[1] + 1
    end
    if count == 0 then
        return
    end
    call("ZREMRANGEBYSCORE", runs, "-inf", whole(upto))
    local cut = call("ZRANGE", runs, 0, 0, "WITHSCORES")
    if cut[1] and tonumber(cut[1]) <= upto then
        call("ZREM", runs, cut[1])
        call("ZADD", runs, cut[2], whole(upto + 1))
    end
    call("HINCRBY", queue.key .. ":ln", "t" .. lane, count)
    queue.lanes = nil
end

-- Move the cursors of idle groups to the start of the log.
function retention.trim_cursors(queue, upto)
    for _, group in ipairs(groups.every(queue)) do
        call("ZREMRANGEBYSCORE", group.skips, "-inf", whole(upto))
        for _, lane in ipairs(log.lanes(queue)) do
            local position = call("HGET", group.cursors, lane.name)
            if position and tonumber(position) < upto then
                cursors.move(group, lane, upto, lane.trimmed)
            end
        end
    end
end

-- Delete dead letters past their retention, at most STEPS, and then the messages that only they kept. Return how many
-- letters, and whether there is more.
function retention.purge(queue)
    local before, count = queue.now - microseconds(queue.policy.dead_letter_seconds), 0
    for _, group in ipairs(groups.every(queue)) do
        local due = call("ZRANGEBYSCORE", group.letter_times, "-inf", whole(before), "LIMIT", 0, STEPS - count)
        for _, member in ipairs(due) do
            count = count + letters.delete(queue, group, tonumber(member))
        end
    end
    if count > 0 then
        call("HSET", queue.key, "kept_after", 0)
    end
    return count, count == STEPS or retention.trim_kept(queue)
end

-- Trim messages that nothing keeps any more and that no stream of the audit still needs: a piece after the one of the
-- sweep before. Return whether there are more.
function retention.trim_kept(queue)
    local after = call("HGET", queue.key, "kept_after")
    if not after then
        return false
    end
    local followed, every = END, groups.every(queue)
    for _, group in ipairs(retention.active(queue, queue.policy)) do
        if group.stream and group.table ~= "messages" then
            followed = min(followed, group.stream)
        end
    end
    local piece = call("ZRANGEBYSCORE", queue.key .. ":kz", "(" .. after, "+inf", "LIMIT", 0, STEPS)
    for _, member in ipairs(piece) do
        local position = tonumber(member)
        local numbers = audit.numbers(queue, position)
        if not is_kept(every, position) and (numbers[#numbers] or 0) <= followed then
            retention.forget(queue, log.at(queue, position))
            call("HDEL", queue.key .. ":kp", "m" .. member, "p" .. member)
            call("ZREM", queue.key .. ":kz", member)
            audit.trim(queue, position, position)
        end
    end
    if #piece == STEPS then
        call("HSET", queue.key, "kept_after", piece[#piece])
        return true
    end
    call("HDEL", queue.key, "kept_after")
    return false
end

-- -- the sweep of one queue ---------------------------------------------------------------------------------------

-- End held messages whose time has come, at most `limit` of them.
local function expire_held(queue, limit)
    local over, numbers = {}, {}
    for _, number in ipairs(held.upto(queue, ":hx", limit)) do
        over[number] = "expire"
    end
    for _, number in ipairs(queues.at_most_once(queue) and held.upto(queue, ":hl", limit) or {}) do
        over[number] = over[number] or "deadline"
    end
    for number in pairs(over) do
        numbers[#numbers + 1] = number
    end
    table.sort(numbers)
    for _, number in ipairs(numbers) do
        promotion.withdraw(queue, { number }, { event = over[number], state = "expired", by = "system",
                reason = REASONS[over[number]] })
    end
    return #numbers
end

-- Positions of an index of times that are due and that the group was not checked for: at most `limit`. An earlier call
-- that did not check all has left the last member that it checked.
local function due_since(queue, group, set, limit)
    local last = call("HGET", group.key, "checked" .. set)
    local rank = last and call("ZRANK", queue.key .. set, last)
    rank = rank and rank + 1 or call("ZCOUNT", queue.key .. set, "-inf", whole(group.expired_upto))
    local found = {}
    local piece = limit > 0 and call("ZRANGE", queue.key .. set, rank, rank + limit - 1, "WITHSCORES") or {}
    for i = 1, #piece, 2 do
        if tonumber(piece[i + 1]) > queue.now then
            return found, true
        end
        found[#found + 1] = tonumber(piece[i])
    end
    if #found > 0 then
        call("HSET", group.key, "checked" .. set, whole(found[#found]))
    end
    return found, limit > #found
end

-- End unread messages whose time has come since the group was last checked; return how many were checked and ended.
local function expire_unread(queue, group, limit)
    local checked, count, is_done = 0, 0, true
    for _, set in ipairs(queues.at_most_once(queue) and { ":ex", ":dl" } or { ":ex" }) do
        local positions, is_last = due_since(queue, group, set, limit - checked)
        table.sort(positions)
        for _, position in ipairs(positions) do
            local message = log.at(queue, position)
            local lane = log.lane_of(message)
            if position > cursors.position(queue, group, lane) and not cursors.is_skipped(group, position) then
                cursors.skip(group, position)
                local is_expired = message.x and message.x <= queue.now
                deliveries.end_skipped(queue, group, message, is_expired and "expire" or "deadline", lane)
                count = count + 1
            end
        end
        checked, is_done = checked + #positions, is_done and is_last
    end
    if is_done and (checked > 0 or queue.now - group.expired_upto > LOOK_BACK) then
        group.expired_upto = queue.now
        call("HSET", group.key, "expired_upto", whole(queue.now))
        call("HDEL", group.key, "checked:ex", "checked:dl")
    end
    return checked, count
end

-- Handle what is due, at most STEPS messages: counts of reclaimed, promoted and expired ones and of removed consumers,
-- and whether there is more.
local function handle_due(queue)
    local left, promoted, reclaimed, expired, removed = STEPS, 0, 0, 0, 0
    local function work(handle, ...)
        local done, counted = 0, 0
        if left > 0 then
            done, counted = handle(queue, ...)
        end
        left = left - done
        return counted or done
    end
    for _, group in ipairs(groups.every(queue)) do
        removed = removed + consumers.remove_missing(queue, group)
        work(consumers.end_leases, group, left)
    end
    promoted = work(promotion.promote, left)
    expired = work(expire_held, left)
    for _, group in ipairs(groups.leasing(queue)) do
        promoted = promoted + work(promotion.make_ready, group, left)
        reclaimed = reclaimed + work(lapsed.reclaim, group, left)
        expired = expired + work(lapsed.expire_tracked, group, left) + work(expire_unread, group, left)
    end
    return reclaimed, promoted, expired, removed, left <= 0
end

-- A piece of the maintenance pass: counts of reclaimed, promoted, expired, trimmed, purged messages and removed
-- consumers, and whether there is more to do.
function retention.sweep(key, now)
    local queue = queues.find(key, now)
    if not queue then
        return { 0, 0, 0, 0, 0, 0, 0 }
    end
    local reclaimed, promoted, expired, removed, has_more = handle_due(queue)
    local purged, trimmed = 0, 0
    has_more = has_more or batches.sweep(queue)
    if not has_more then
        purged, has_more = retention.purge(queue)
    end
    if not has_more then
        trimmed, has_more = retention.trim(queue)
        batches.trim(queue, now - microseconds(queue.policy.history_seconds),
            cursors.sent_from(queue, queue.trimmed + 1) or END)
        sink.drop_abandoned(queue)
        joins.drop_abandoned(queue)
    end
    return { reclaimed, promoted, expired, trimmed, purged, removed, has_more and 1 or 0 }
end
