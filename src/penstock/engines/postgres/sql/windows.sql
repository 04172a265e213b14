-- A statement that only calls a function has the name of the function, where it is described.

select penstock.horizon(%s, %s);
select penstock.earliest(%s, %s);
select * from penstock.unread_after(%s);
select penstock.mark_at(%s, %s::bigint);
select penstock.cut(%s, %s, %s, %s::bigint, %s::bigint, %s);
select penstock.advance(%s, %s, %s, %s);
select penstock.check_part(
    %s, %s, %s, %s, %s::text::xid8, %s::bigint, %s::text::xid8, %s::bigint, %s::bigint, %s::bigint, %s::bigint
);
select * from penstock.parts(%s, %s, %s, %s::integer, %s);

-- name: stream_position
-- The mark of a stream group.
select g.stream_mark
from penstock.queue as q join penstock.group as g using (queue_id)
where q.name = %s and g.name = %s;

-- name: lanes
-- The lanes of a queue, including those of messages that ended while held; one row without a lane when it has none.
select q.queue_id, n.lane_id, n.priority, n.shard
from penstock.queue as q left join penstock.lane as n using (queue_id)
where q.name = %s
order by n.lane_id;

-- name: between
-- The text of a statement that selects the messages between two marks and two places.
select penstock._messages_between(q, %s, %s, %s::text::xid8, %s::bigint, %s::text::xid8, %s::bigint)
from penstock.queue as q where q.name = %s;

-- name: message_rows
-- Messages of such a statement, in order.
select {columns} from ({between}) as m order by m.tx, m.position;

-- name: trail
-- Audit entries between two marks, from one entry to another; one row for each set of messages.
select h.entry, h.at, h.event, h.state, h.by, g.name as "group", h.reason, h.attempt, h.token
from penstock.queue as q
cross join lateral penstock._audit_between(
    q, penstock._mark_as_cursor(%s), penstock._mark_as_cursor(%s), %s::boolean
) as h
left join penstock.group as g on g.group_id = h.group_id
where q.queue_id = %s and h.entry between %s::bigint and %s::bigint
order by h.entry;

-- name: trail_rows
-- The messages of those entries. Contiguous sets are read as ranges of the log; `offset 0` keeps that plan whatever sizes the
-- planner estimates.
select h.entry, {columns}
from (
    select h.entry, h.first, h.last, h.positions
    from penstock.queue as q
    cross join lateral penstock._audit_between(
        q, penstock._mark_as_cursor(%s), penstock._mark_as_cursor(%s), %s::boolean
    ) as h
    where q.queue_id = %s and h.entry between %s::bigint and %s::bigint
    order by h.entry
    offset 0
) as h
cross join lateral unnest(penstock._expand_positions(h.first, h.last, h.positions)) as one (run)
cross join lateral (
    select l.* from penstock.log as l where l.position >= lower(one.run) and l.position < upper(one.run) order by l.position offset 0
) as m
where m.lane_id = any (%s::integer[])
order by h.entry, m.position;

-- name: raw_id
-- The id of a message if the sender chose it.
m.id::text

-- name: raw_batch
-- The name of a message's batch.
case when m.batch_id is not null then (
    select b.name from penstock.batch as b where b.batch_id = m.batch_id
) end

-- name: letter_rows
-- Dead letters after a place, not beyond another.
select {columns}
from penstock.dead_letter as m
join penstock.group as g using (group_id)
where m.queue_id = %s
    and (m.position, m.group_id) > (%s::bigint, %s::bigint) and (m.position, m.group_id) <= (%s::bigint, %s::bigint)
order by m.position, m.group_id;

-- name: raw_group
-- The name of a dead letter's group.
g.name

-- name: epoch
-- The epoch, which identifies the log.
select epoch from penstock.store;
