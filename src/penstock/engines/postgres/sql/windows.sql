-- name: horizon
-- The mark up to which everything is readable.
select penstock.horizon(%s, %s);

-- name: earliest
-- The mark from which a table is whole.
select penstock.earliest(%s, %s);

-- name: mark_at
-- The mark behind the last message sent before a time.
select penstock._mark_above(penstock._position_at(%s::bigint));

-- name: cut
-- A mark between two.
select penstock.cut(%s, %s, %s, %s::bigint, %s::bigint, %s);

-- name: parts
-- Pieces of a window.
select n, last_tx, last_seq from penstock.parts(%s, %s, %s, %s::integer, %s);

-- name: stream_position
-- Where a stream group stands.
select g.stream_mark
from penstock.queue as q join penstock.reader as g using (queue_id)
where q.name = %s and g.name = %s;

-- name: advance
-- Move a stream group forward.
select penstock.advance(%s, %s, %s, %s);

-- name: queue_number
-- A queue by name.
select queue_id from penstock.queue where name = %s;

-- name: message_rows
-- Messages between two marks, from one place to another.
select {columns}
from penstock.queue as q
cross join lateral penstock._between(q, penstock._mark_cursor(%s), penstock._mark_cursor(%s)) as m
join penstock.lane as lane using (lane_id)
left join penstock.batch as batch on batch.batch_id = m.batch_id
where q.queue_id = %s
    and (m.tx, m.seq) > (%s::text::xid8, %s::bigint) and (m.tx, m.seq) <= (%s::text::xid8, %s::bigint)
order by m.tx, m.seq;

-- name: trail_rows
-- What happened to messages between two marks, from one entry to another.
select {columns}
from penstock.queue as q
cross join lateral penstock._happened(
    q, penstock._mark_cursor(%s), penstock._mark_cursor(%s), %s::boolean
) as h
cross join lateral unnest(penstock._members(penstock._all(h.first, h.last, h.positions))) as one (seq)
cross join lateral (
    select l.seq, l.lane_id, l.created_at, l.id, l.content_type, l.headers, l.expires_at, l.deadline_at, l.address, l.key,
        l.batch_id, l.created_by, l.available_at, l.payload, n.priority, n.shard
    from penstock.log as l join penstock.lane as n using (lane_id)
    where l.seq = one.seq and n.queue_id = q.queue_id and (h.lane_id is null or l.lane_id = h.lane_id)
) as m
cross join lateral (select m.priority, m.shard) as lane
left join penstock.batch as batch on batch.batch_id = m.batch_id
left join penstock.reader as reader on reader.group_id = h.group_id
where q.queue_id = %s and h.entry between %s::bigint and %s::bigint
order by h.entry, one.seq;

-- name: letter_page
-- Dead letters after a place; so many rows.
select {columns}, m.seq, m.group_id
from penstock._get_queue(%s) as q
join penstock.dead_letter as m using (queue_id)
join penstock.reader as reader on reader.group_id = m.group_id
left join penstock.lane as lane on lane.lane_id = m.lane_id
left join penstock.batch as batch on batch.batch_id = m.batch_id
where (m.seq, m.group_id) > (%s::bigint, %s::bigint) and (m.seq, m.group_id) <= (%s::bigint, %s::bigint)
order by m.seq, m.group_id
limit %s::bigint;

-- name: column_position
-- A message's place in the log.
m.seq

-- name: column_id
-- A message's id, made from its place unless it was chosen.
coalesce(m.id, penstock.made_id(m.created_at, m.seq))::text

-- name: column_chosen_id
-- A message's id if it was chosen.
m.id::text

-- name: column_queue
-- The queue's name.
q.name

-- name: column_created_at
-- When the message was sent.
m.created_at

-- name: column_priority
-- Lanes of messages that ended while held count downwards.
case when lane.priority < 0 then -1 - lane.priority else lane.priority end

-- name: column_shard
-- Where the queue's log is split.
coalesce(lane.shard, 0)

-- name: column_content_type
-- Bytes unless said otherwise.
coalesce(m.content_type, 'application/octet-stream')

-- name: column_headers
-- A JSON object.
m.headers

-- name: column_expires_at
-- When the message expires.
m.expires_at

-- name: column_deadline_at
-- Until when it should be done.
m.deadline_at

-- name: column_address
-- The message's address.
m.address

-- name: column_key
-- The message's key.
m.key

-- name: column_batch
-- The name of its batch.
batch.name

-- name: column_created_by
-- Who sent it.
coalesce(m.created_by, 'system')

-- name: column_available_at
-- When it was due.
coalesce(m.available_at, m.created_at)

-- name: column_payload
-- The message itself.
m.payload

-- name: column_entry
-- The order of what happened.
h.entry

-- name: column_at
-- When it happened.
h.at

-- name: column_finished_at
-- When the message ended.
h.at

-- name: column_event
-- What happened.
h.event

-- name: column_state
-- The state that it led to.
h.state

-- name: column_by
-- Who did it.
coalesce(h.by, 'system')

-- name: column_group
-- In which group; null for all.
reader.name

-- name: column_reason
-- Why.
h.reason

-- name: column_attempt
-- Which delivery it was.
h.attempt

-- name: column_attempts
-- How often the message was delivered.
h.attempt

-- name: column_token
-- Of which receive.
h.token

-- name: column_outcome
-- How the message ended.
h.state

-- name: letter_outcome
-- How the message of a dead letter ended.
m.outcome

-- name: letter_reason
-- Why the message of a dead letter ended.
m.reason

-- name: letter_attempts
-- How often the message of a dead letter was delivered.
m.attempts

-- name: letter_died_at
-- When the message of a dead letter ended.
m.died_at
