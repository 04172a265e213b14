-- The audit: a stream of entries by number, each for a range of positions. Entries of one position are indexed by it;
-- entries of a range by its last position, and are at most SPAN wide.

local SPAN = 1024

-- Write an entry: fields first, last, event, state, by, reason, attempt, token, code. No group means every group.
function audit.record(queue, group, step)
    local singles, ranges, stream = queue.key .. ":as", queue.key .. ":ar", queue.key .. ":a"
    local at, first = queue.now, step.first
    repeat
        local last = min(step.last, first + SPAN - 1)
        local number = queue.entry + 1
        queue.entry = number
        local entry = {
            f = first, l = last, g = group and group.id, n = group and group.name, a = at, e = step.event,
            s = step.state, b = step.by, r = step.reason, t = step.attempt, k = step.token, c = step.code,
        }
        call("XADD", stream, whole(number) .. "-0", "e", pack(entry))
        if first == last then
            call("ZADD", singles, whole(first), whole(number))
        else
            call("ZADD", ranges, whole(last), whole(number) .. ":" .. whole(first))
        end
        first = last + 1
    until first > step.last
    call("HSET", queue.key, "entry", whole(queue.entry))
end

local function entry_of(row)
    local entry = unpacked(row[2][2])
    entry.number = tonumber(row[1]:match("^%d+"))
    return entry
end

function audit.at(queue, number)
    local row = call("XRANGE", queue.key .. ":a", whole(number) .. "-0", whole(number) .. "-0")[1]
    return row and entry_of(row)
end

function audit.between(queue, after, upto, count)
    local rows = call("XRANGE", queue.key .. ":a", "(" .. whole(after) .. "-0", whole(upto) .. "-0", "COUNT", count)
    for i = 1, #rows do
        rows[i] = entry_of(rows[i])
    end
    return rows
end

-- Numbers of the entries that cover a position, in order.
function audit.numbers(queue, position)
    local found = {}
    for _, number in ipairs(call("ZRANGEBYSCORE", queue.key .. ":as", whole(position), whole(position))) do
        found[#found + 1] = tonumber(number)
    end
    local wide = call("ZRANGEBYSCORE", queue.key .. ":ar", whole(position), whole(position + SPAN - 1))
    for _, member in ipairs(wide) do
        local number, first = member:match("^(%d+):(%d+)$")
        if tonumber(first) <= position then
            found[#found + 1] = tonumber(number)
        end
    end
    table.sort(found)
    return found
end

function audit.entries(queue, position)
    local found = {}
    for _, number in ipairs(audit.numbers(queue, position)) do
        found[#found + 1] = audit.at(queue, number)
    end
    return found
end

-- The last entry of a message in a group, or in every group.
function audit.last(queue, group, position)
    local numbers = audit.numbers(queue, position)
    for i = #numbers, 1, -1 do
        local entry = audit.at(queue, numbers[i])
        if entry and (entry.g == nil or (group and entry.g == group.id)) then
            return entry
        end
    end
end

-- How the token has settled the message with the same event before.
function audit.settled_before(queue, group, position, token, event)
    local numbers = audit.numbers(queue, position)
    for i = #numbers, 1, -1 do
        local entry = audit.at(queue, numbers[i])
        if entry and entry.g == group.id and entry.k == token and entry.e == event then
            return entry.s
        end
    end
end

local function delete(queue, entry)
    call("XDEL", queue.key .. ":a", whole(entry.number) .. "-0")
    if entry.f == entry.l then
        call("ZREM", queue.key .. ":as", whole(entry.number))
    else
        call("ZREM", queue.key .. ":ar", whole(entry.number) .. ":" .. whole(entry.f))
    end
end

-- Entries of a range of positions, each once.
local function covering(queue, first, last)
    local numbers = {}
    for _, number in ipairs(call("ZRANGEBYSCORE", queue.key .. ":as", whole(first), whole(last))) do
        numbers[#numbers + 1] = tonumber(number)
    end
    for _, member in ipairs(call("ZRANGEBYSCORE", queue.key .. ":ar", whole(first), whole(last + SPAN - 1))) do
        local number, begins = member:match("^(%d+):(%d+)$")
        if tonumber(begins) <= last then
            numbers[#numbers + 1] = tonumber(number)
        end
    end
    table.sort(numbers)
    return numbers
end
audit.covering = covering

function audit.set_trimmed(queue, number, at)
    if number > queue.trimmed_entry then
        queue.trimmed_entry = number
        call("HSET", queue.key, "trimmed_entry", whole(number), "trimmed_entry_at", whole(at))
    end
end

local function has_message(queue, first, last)
    if call("XRANGE", queue.key .. ":log", whole(first) .. "-0", whole(last) .. "-0", "COUNT", 1)[1] then
        return true
    end
    for position = first, last do
        if call("HEXISTS", queue.key .. ":kp", "m" .. whole(position)) == 1 then
            return true
        end
    end
    return false
end

-- Delete the audit of messages that were trimmed; entries that cover a message that is still there stay.
function audit.trim(queue, first, last)
    local newest
    for _, number in ipairs(covering(queue, first, last)) do
        local entry = audit.at(queue, number)
        if entry and entry.f > 0 then
            newest = entry
            if entry.f <= last and not has_message(queue, entry.f, entry.l) then
                delete(queue, entry)
            end
        end
    end
    if newest then
        audit.set_trimmed(queue, newest.number, newest.a)
    end
end

-- Clear entries that cover only removed messages; their numbers stay for marks that name them.
function audit.clear(queue, position)
    for _, number in ipairs(covering(queue, position, position)) do
        local entry = audit.at(queue, number)
        if entry and not has_message(queue, entry.f, entry.l) then
            delete(queue, entry)
            call("HSET", queue.key .. ":ae", whole(number), whole(entry.a))
        end
    end
end

-- Delete the entries of a group; the audit is complete again after the last of them.
function audit.forget_group(queue, group)
    local after, newest = 0, nil
    repeat
        local rows = audit.between(queue, after, END, 1000)
        for _, entry in ipairs(rows) do
            after = entry.number
            if entry.g == group.id then
                newest = entry
                delete(queue, entry)
            end
        end
    until #rows == 0
    if newest then
        audit.set_trimmed(queue, newest.number, newest.a)
    end
end
