-- Windows: what a reader by window needs. A row of the log is known by its position, one of the audit by its number;
-- both become visible in order, because the server runs one call at a time.

-- Record the last message up to a position; called before these are trimmed.
function windows.keep_last(queue, upto)
    local number, at = windows.last_message(queue, upto)
    if number then
        call("HSET", queue.key, "trimmed_number", whole(number), "trimmed_at", whole(at))
    end
end

function windows.trimmed(queue, kind)
    local row
    if kind == "messages" then
        row = call("HMGET", queue.key, "trimmed_number", "trimmed_at")
    else
        row = call("HMGET", queue.key, "trimmed_entry", "trimmed_entry_at")
    end
    if row[1] and row[2] then
        return tonumber(row[1]), tonumber(row[2])
    end
end

-- The last message up to a position, even if it was removed or trimmed: its position and time.
function windows.last_message(queue, upto)
    local number, at
    local last = upto
    while last > queue.trimmed and not number do
        local rows = log.read_backwards(queue, last, queue.trimmed + 1, 100)
        for _, message in ipairs(rows) do
            if not number and not message.w then
                number, at = message.position, message.c
            end
            last = message.position - 1
        end
        last = #rows > 0 and last or queue.trimmed
    end
    for position, time in pairs(pairs_of(call("HGETALL", queue.key .. ":rm"))) do
        position = tonumber(position)
        if position <= upto and position > (number or 0) then
            number, at = position, tonumber(time)
        end
    end
    local trimmed, trimmed_at = windows.trimmed(queue, "messages")
    if trimmed and trimmed <= upto and trimmed > (number or 0) then
        number, at = trimmed, trimmed_at
    end
    return number, at
end

local function last_entry(queue, upto)
    local number, at
    local row = call("XREVRANGE", queue.key .. ":a", whole(upto) .. "-0", "-", "COUNT", 1)[1]
    if row then
        number, at = tonumber(row[1]:match("^%d+")), unpacked(row[2][2]).a
    end
    for cleared, time in pairs(pairs_of(call("HGETALL", queue.key .. ":ae"))) do
        cleared = tonumber(cleared)
        if cleared <= upto and cleared > (number or 0) then
            number, at = cleared, tonumber(time)
        end
    end
    local trimmed, trimmed_at = windows.trimmed(queue, "audit")
    if trimmed and trimmed <= upto and trimmed > (number or 0) then
        number, at = trimmed, trimmed_at
    end
    return number, at
end

-- The last row before a number: of the end of the log or audit, of a time, or the one last trimmed.
function windows.last(key, now, given)
    local queue = queues.find(key, now)
    if not queue then
        return {}
    end
    local number, at
    if given.trimmed then
        number, at = windows.trimmed(queue, given.kind)
    elseif given.kind == "messages" then
        local upto = given.at and cursors.position_at(queue, given.at) or given.upto or queue.last
        number, at = windows.last_message(queue, upto)
    else
        number, at = last_entry(queue, given.upto or queue.entry)
    end
    return number and { number, at } or {}
end

-- When the row of a number was written, if the queue had one there and still knows; then the last number given out and
-- the last one trimmed.
function windows.times(key, now, given)
    local queue = queues.get(key, now)
    local found, number = {}, given.number
    if given.kind == "messages" then
        local message = log.at(queue, number)
        found[1] = message and message.c
        found[#found + 1] = tonumber(call("HGET", queue.key .. ":rm", whole(number)) or nil)
    else
        local entry = audit.at(queue, number)
        found[1] = entry and entry.a
        found[#found + 1] = tonumber(call("HGET", queue.key .. ":ae", whole(number)) or nil)
    end
    local trimmed, at = windows.trimmed(queue, given.kind)
    if trimmed == number then
        found[#found + 1] = at
    end
    return { found, given.kind == "messages" and queue.last or queue.entry, trimmed or 0 }
end

-- Ranges of messages that groups read, with start < position <= end, in order.
function windows.ranges(key, now, given)
    local queue = queues.get(key, now)
    local found = {}
    for _, lane in ipairs(log.lanes(queue)) do
        for _, run in ipairs(log.runs(queue, lane.name, given.start, given.upto)) do
            found[#found + 1] = run
        end
    end
    sort_by(found, 1)
    return found
end

function windows.sizes(key, now, given)
    local queue = queues.get(key, now)
    local found = {}
    for _, message in ipairs(log.read(queue, given.first, given.last, 1000)) do
        found[#found + 1] = { message.position, #message.payload }
    end
    return found
end

-- Removed messages that an entry covers do not count.
local function width(queue, entry)
    local count = entry.l - entry.f + 1
    if call("EXISTS", queue.key .. ":rm") == 1 then
        for position = entry.f, entry.l do
            count = count - call("HEXISTS", queue.key .. ":rm", whole(position))
        end
    end
    return count
end

local function counts(entry, ended)
    return entry.f > 0 and (not ended or not LIVE[entry.s])
end

-- Number of rows of each entry, of all entries or only of endings: {entry, count} and the last entry looked at.
function windows.entries(key, now, given)
    local queue = queues.get(key, now)
    local found, after = {}, given.start
    for _, entry in ipairs(audit.between(queue, after, given.upto, 1000)) do
        after = entry.number
        if counts(entry, given.ended) then
            found[#found + 1] = { entry.number, width(queue, entry) }
        end
    end
    return { found, after > given.start and after or given.upto }
end

function windows.count_ended(queue, after)
    local count = 0
    repeat
        local rows = audit.between(queue, after, END, 1000)
        for _, entry in ipairs(rows) do
            after = entry.number
            count = count + (counts(entry, true) and width(queue, entry) or 0)
        end
    until #rows == 0
    return count
end

local function message_columns(queue, message, given)
    return {
        message.position, log.id_of(queue, message), message.c, message.p or 0, message.s or queue.shard, optional(message.t),
        optional(given.headers and message.h or nil), optional(message.x), optional(message.d), optional(message.a),
        optional(message.k), optional(message.b and batches.name_of(queue, message.b)), optional(message.y),
                optional(message.v),
        optional(given.payload and message.payload or nil),
    }
end

-- Messages of a range that groups read: rows, and the position to go on after.
function windows.read_messages(key, now, given)
    local queue = queues.get(key, now)
    local found, after, size = {}, given.after, 0
    local rows = log.read(queue, given.after + 1, given.last, given.limit)
    for _, message in ipairs(rows) do
        if size < given.size then
            if not message.w then
                found[#found + 1] = message_columns(queue, message, given)
            end
            after, size = message.position, size + #message.payload
        end
    end
    return { found, #rows > 0 and after or given.last }
end

-- Rows of audit entries, one per message: of the audit, or of endings with the message. Ends after a whole entry or in
-- the middle of one: {rows, entry, position}, from which the next call goes on.
function windows.read_entries(key, now, given)
    local queue = queues.get(key, now)
    local found, at, size = {}, { given.entry, given.position }, 0
    local function add(entry)
        local first = entry.number == given.entry and max(entry.f, given.position + 1) or entry.f
        for position = first, entry.l do
            if #found >= given.limit or size >= given.size then
                return false
            end
            local message = log.at(queue, position)
            if message then
                local row = given.messages and message_columns(queue, message, given)
                    or { message.position, log.id_of(queue, message), message.c }
                for _, value in ipairs({
                    entry.number, optional(entry.n), entry.s, optional(entry.r), entry.t or 0, optional(entry.b),
                            entry.a,
                    entry.e, optional(entry.k),
                }) do
                    row[#row + 1] = value
                end
                found[#found + 1] = row
                size = size + (given.payload and #message.payload or 0)
            end
            at = { entry.number, position }
        end
        return true
    end
    local rows = audit.between(queue, given.entry - 1, given.last, 1000)
    for _, entry in ipairs(rows) do
        if counts(entry, given.messages) and not add(entry) then
            return { found, at[1], at[2] }
        end
        at = { entry.number, END }
    end
    if #rows == 0 or rows[#rows].number >= given.last then
        return { found, given.last + 1, 0 }
    end
    return { found, at[1], at[2] }
end

-- Dead letters as they are now, by position and group, after a place.
function windows.read_letters(key, now, given)
    local queue = queues.get(key, now)
    local positions = {}
    for _, group in ipairs(groups.every(queue)) do
        for _, member in ipairs(call("HKEYS", group.letters)) do
            local position = tonumber(member)
            if position >= given.first and position <= given.last then
                positions[#positions + 1] = { position, tonumber(group.id), group }
            end
        end
    end
    sort_by(positions, 1, 2)
    local found, size, place = {}, 0, given.place
    while positions[place + 1] and #found < given.limit and size < given.size do
        place = place + 1
        local one = positions[place]
        local letter, message = letters.find(one[3], one[1]), log.at(queue, one[1])
        local row = message_columns(queue, message, given)
        for _, value in ipairs({ one[3].name, letter.o, optional(letter.r), letter.n, letter.at }) do
            row[#row + 1] = value
        end
        found[#found + 1] = row
        size = size + #message.payload
    end
    return { found, place, #positions }
end

-- Forget removed messages before the start of the log that no readable entry covers, and cleared entries before the
-- start of the audit.
function windows.drop_removed(queue, upto)
    for _, position in ipairs(call("HKEYS", queue.key .. ":rm")) do
        local numbers = audit.numbers(queue, tonumber(position))
        if tonumber(position) <= upto and (numbers[#numbers] or 0) <= queue.trimmed_entry then
            call("HDEL", queue.key .. ":rm", position)
        end
    end
    for _, number in ipairs(call("HKEYS", queue.key .. ":ae")) do
        if tonumber(number) < queue.trimmed_entry then
            call("HDEL", queue.key .. ":ae", number)
        end
    end
end

-- -- stream groups ------------------------------------------------------------------------------------------------

function windows.place(queue, group, position)
    group.stream = position
    call("HSET", group.key, "stream", whole(position), "used_at", whole(queue.now))
end

function windows.stream_position(key, now, given)
    local queue = queues.find(key, now)
    local group = queue and groups.find(queue, given.group)
    if not group or not group.stream then
        return {}
    end
    return { group.table, group.stream }
end

-- Move a stream group's cursor forward, never back. The caller has checked the mark.
function windows.advance(key, now, given)
    local queue = queues.ensure(key, now)
    local group = groups.find(queue, given.group)
    if group and not group.stream then
        if groups.is_primary(queue, group) or call("EXISTS", group.cursors, group.tracked, group.leases) > 0 then
            refuse("LEASING_GROUP", group.name)
        end
    elseif not group and given.group == queue.policy.primary_group then
        refuse("LEASING_GROUP", given.group)
    elseif group and group.table ~= given.kind then
        refuse("OTHER_STREAM", group.name, group.table)
    end
    group = group or groups.ensure(queue, given.group)
    call("HSET", group.key, "table", given.kind)
    windows.place(queue, group, max(given.number, group.stream or 0))
    return 1
end
