-- Views for SQL clients. Everything is joined from the queue on (`lateral`), so that a query about one queue reads one
-- queue; and messages of an audit entry from the entry on (`offset 0` keeps that order), because the reverse would be
-- slow. Functions in a view run with the rights of the caller: none here reads a table.

-- The messages of the log and held messages, in whatever state. A held message has no position yet.
create or replace view penstock.message as
select q.name as queue,
    coalesce(m.id, penstock.made_id(m.created_at, (select salt from penstock.store), m.position)) as id, m.position,
    m.payload, coalesce(m.content_type, 'application/octet-stream') as content_type,
    penstock.headers_jsonb(m.headers) as headers, m.priority, penstock.to_time(m.created_at) as created_at,
    coalesce(m.created_by, 'system') as created_by,
    penstock.to_time(coalesce(m.available_at, m.created_at)) as available_at, penstock.to_time(m.expires_at) as expires_at,
    penstock.to_time(m.deadline_at) as deadline_at, m.address, m.key,
    (select b.name from penstock.batch as b where b.batch_id = m.batch_id) as batch
from penstock.queue as q
cross join lateral (
    select m.position, m.id, m.created_at, m.content_type, m.headers, n.priority, m.created_by, m.available_at, m.expires_at,
        m.deadline_at, m.address, m.key, m.batch_id, m.payload
    from penstock.lane as n
    join penstock.log as m on m.lane_id = n.lane_id
    where n.queue_id = q.queue_id and n.priority >= 0 and m.position > q.trimmed_position
    union all
    select null, h.id, h.created_at, h.content_type, h.headers, h.priority, h.created_by, h.available_at, h.expires_at,
        h.deadline_at, h.address, h.key, h.batch_id, h.payload
    from penstock.held as h
    where h.queue_id = q.queue_id
) as m;

-- Messages that have ended in a group, with their outcomes: succeeded ones, and those whose dead letters are kept.
create or replace view penstock.message_archive as
select q.name as queue, g.name as group_name,
    coalesce(m.id, penstock.made_id(m.created_at, (select salt from penstock.store), m.position)) as id, m.position,
    m.payload, m.content_type, penstock.to_time(m.created_at) as created_at,
    coalesce(m.created_by, 'system') as created_by, m.outcome, coalesce(m.by, 'system') as by, m.reason, m.attempts,
    penstock.to_time(m.at) as ended_at, q.queue_id
from penstock.queue as q
join penstock.group as g on g.queue_id = q.queue_id
cross join lateral (
    select m.position, m.id, m.created_at, m.created_by, m.content_type, m.payload, s.at, s.by, s.reason, s.attempt as attempts,
        s.state as outcome
    from penstock.audit as s
    cross join lateral (
        select m.* from penstock.log as m
        join penstock.lane as n on n.lane_id = m.lane_id and n.queue_id = s.queue_id
        where m.position between s.first and s.last and (s.positions is null or s.positions @> m.position)
            and m.position > q.trimmed_position
        offset 0
    ) as m
    where s.queue_id = q.queue_id and s.group_id = g.group_id and s.state = 'succeeded'
    union all
    select d.position, d.id, d.created_at, d.created_by, d.content_type, d.payload, d.died_at, s.by, d.reason, d.attempts,
        d.outcome
    from penstock.dead_letter as d
    left join lateral (
        select s.by from penstock.audit as s
        where s.queue_id = d.queue_id and s.last >= d.position and s.first <= d.position and s.state = d.outcome
            and (s.positions is null or s.positions @> d.position)
        order by s.entry desc
        limit 1
    ) as s on true
    where d.group_id = g.group_id
) as m;

-- Messages that ended without success, from the table dead_letter.
create or replace view penstock.dead_letters as
select queue, group_name, id, position, payload, content_type, outcome, reason, attempts, created_at, created_by, by,
    ended_at as died_at
from penstock.message_archive
where outcome <> 'succeeded';

-- Audit entries, one row per message; without a group an entry concerns all groups.
create or replace view penstock.message_audit as
select q.name as queue,
    coalesce(a.id, penstock.made_id(a.created_at, (select salt from penstock.store), a.position)) as id, a.position,
    penstock.to_time(a.at) as at, a.event, a.state, coalesce(a.by, 'system') as by, g.name as group_name, a.reason,
    a.attempt, a.entry, a.token, q.queue_id
from penstock.queue as q
cross join lateral (
    select m.id, m.created_at, m.position, m.created_at as at, 'send' as event,
        case when m.available_at is null then 'ready' else 'held' end as state, m.created_by as by,
        null::integer as group_id, null::text as reason, 0 as attempt, 0::bigint as entry, null::bigint as token
    from penstock.lane as n
    join penstock.log as m on m.lane_id = n.lane_id
    where n.queue_id = q.queue_id and m.position > q.trimmed_position
    union all
    select h.id, h.created_at, null, h.created_at, 'send', 'held', h.created_by, null, null, 0, 0, null
    from penstock.held as h
    where h.queue_id = q.queue_id
    union all
    select m.id, m.created_at, m.position, c.at, 'receive', 'leased', c.consumer, c.group_id, null, 1, c.entry, c.token
    from penstock.group as g
    join penstock.cursor as c on c.group_id = g.group_id
    cross join lateral (
        select m.* from penstock.log as m
        where m.lane_id = c.lane_id and m.position between c.first and c.last
            and (c.positions is null or c.positions @> m.position) and m.position > q.trimmed_position
        offset 0
    ) as m
    where g.queue_id = q.queue_id and c.n > 0
    union all
    select m.id, m.created_at, m.position, s.at, s.event, s.state, s.by, s.group_id, s.reason, s.attempt, s.entry, s.token
    from penstock.audit as s
    cross join lateral (
        select m.* from penstock.log as m
        join penstock.lane as n on n.lane_id = m.lane_id and n.queue_id = s.queue_id
        where m.position between s.first and s.last and (s.positions is null or s.positions @> m.position)
            and m.position > q.trimmed_position
        offset 0
    ) as m
    where s.queue_id = q.queue_id
) as a
left join penstock.group as g on g.group_id = a.group_id;
