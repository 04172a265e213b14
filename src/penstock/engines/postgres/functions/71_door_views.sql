-- What the tables of other conventions show: the live messages, the archive and the audit of a queue's primary group
-- (of the group `default` where it has none). All of it is read from the log and its companions; nothing is copied.
-- Functions in a view run with the rights of whoever looks, so there are none here that read a table.

-- Everything is looked up from the queue on (`lateral`), so that a question about one queue reads one queue; and the
-- messages of a step from the step on (`offset 0` keeps it so), because the way back would be long.

-- Messages that have not ended: state is held, ready or leased, attempt counts the deliveries so far. A message that is
-- held before it reached the log has no seq.
create or replace view penstock.door_live as
select q.queue_id, m.seq, coalesce(m.id, penstock.made_id(m.created_at, (select salt from penstock.store), m.seq)) as id,
    m.created_at, coalesce(m.created_by, 'system') as created_by, m.content_type, m.payload, m.expires_at, m.state,
    m.attempt, m.available_at, m.lease_ends_at, m.consumer, m.token
from penstock.queue as q
left join penstock.reader as g on g.queue_id = q.queue_id and g.name = coalesce(q.primary_group, 'default')
cross join lateral (
    -- not read yet
    select m.seq, m.id, m.created_at, m.created_by, m.content_type, m.payload, m.expires_at, 'ready' as state,
        0 as attempt, coalesce(m.available_at, m.created_at) as available_at, null::bigint as lease_ends_at,
        null::text as consumer, null::bigint as token
    from penstock.lane as n
    left join lateral (
        select c.prev, c.snap, c.at_tx, c.at_seq, c.used_up, c.above
        from penstock.claim as c
        where c.group_id = g.group_id and c.lane_id = n.lane_id
        order by c.number desc
        limit 1
    ) as c on true
    join penstock.log as m on m.lane_id = n.lane_id
    where n.queue_id = q.queue_id and n.priority >= 0 and m.seq > q.trimmed_position
        and (
            c.snap is null
            or not pg_visible_in_snapshot(m.tx, c.snap)
            or not pg_visible_in_snapshot(m.tx, c.prev) and not c.used_up and m.seq > c.above
                and (m.tx, m.seq) > (c.at_tx, c.at_seq)
        )
        and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = m.seq)
    union all
    -- first attempts in flight
    select m.seq, m.id, m.created_at, m.created_by, m.content_type, m.payload, m.expires_at, 'leased', 1,
        coalesce(m.available_at, m.created_at), e.ends_at, e.consumer, e.token
    from penstock.lease as e
    join penstock.log as m
        on m.lane_id = e.lane_id and m.seq between e.first and e.last and e.positions @> m.seq
    where e.group_id = g.group_id
    union all
    -- those that are looked after one by one
    select t.seq, t.id, t.created_at, t.created_by, t.content_type, t.payload, t.expires_at, t.state, t.attempt,
        case t.state when 'held' then t.until_at else coalesce(t.leased_at, t.available_at, t.created_at) end,
        case t.state when 'leased' then t.until_at end, case t.state when 'leased' then t.consumer end,
        case t.state when 'leased' then t.token end
    from penstock.tracked as t
    where t.group_id = g.group_id
    union all
    -- not in the log yet
    select null, h.id, h.created_at, h.created_by, h.content_type, h.payload, h.expires_at, 'held', 0, h.available_at,
        null, null, null
    from penstock.held as h
    where h.queue_id = q.queue_id
) as m;

-- Messages that have ended, and how. Of those that did not succeed, those whose dead letters are kept.
create or replace view penstock.door_ended as
select q.queue_id, m.seq, coalesce(m.id, penstock.made_id(m.created_at, (select salt from penstock.store), m.seq)) as id,
    m.created_at, coalesce(m.created_by, 'system') as created_by, m.content_type, m.payload, m.at,
    coalesce(m.by, 'system') as by, m.reason, m.outcome
from penstock.queue as q
join penstock.reader as g on g.queue_id = q.queue_id and g.name = coalesce(q.primary_group, 'default')
cross join lateral (
    select m.seq, m.id, m.created_at, m.created_by, m.content_type, m.payload, s.at, s.by, s.reason, s.state as outcome
    from penstock.step as s
    cross join lateral (
        select m.* from penstock.log as m
        join penstock.lane as n on n.lane_id = m.lane_id and n.queue_id = s.queue_id
        where m.seq between s.first and s.last and (s.positions is null or s.positions @> m.seq)
            and m.seq > q.trimmed_position
        offset 0
    ) as m
    where s.queue_id = q.queue_id and s.group_id = g.group_id and s.state = 'succeeded'
    union all
    select d.seq, d.id, d.created_at, d.created_by, d.content_type, d.payload, d.died_at, s.by, d.reason, d.outcome
    from penstock.dead_letter as d
    left join lateral (
        select s.by from penstock.step as s
        where s.queue_id = d.queue_id and s.last >= d.seq and s.first <= d.seq and s.state = d.outcome
            and (s.positions is null or s.positions @> d.seq)
        order by s.entry desc
        limit 1
    ) as s on true
    where d.group_id = g.group_id
) as m;

-- The states of the stored-procedure conventions.
create or replace view penstock.door_state as
select *
from (values
    (1, 'queued', true), (2, 'leased', true), (3, 'history', false), (32, 'history recovered', false),
    (4, 'rescheduled', false), (5, 'lease-expired', true), (6, 'message-expired', false), (7, 'dead-letter', false),
    (72, 'dead-letter-recovered', false), (77, 'dead-letter-cron', false), (88, 'dead-letter-retries-exceeded', false),
    (91, 'no queue items', false), (99, 'error', false)
) as state (message_state_id, state_title, is_fsm);

-- Which of them an outcome is.
create or replace view penstock.door_outcome as
select *
from (values ('succeeded', 3), ('rejected', 7), ('failed', 88), ('lease_expired', 5), ('expired', 6), ('cancelled', 7))
as outcome (outcome, message_state_id);

-- message_queue of every such schema.
create or replace view penstock.door_queue as
select d.door_id, l.id as message_id,
    case
        when l.state <> 'leased' then 1
        when penstock.to_time(l.lease_ends_at) > clock_timestamp() then 2
        else 5
    end as message_state_id,
    case l.state when 'leased' then l.attempt - 1 else l.attempt end as retries,
    penstock.to_time(l.available_at) as available_on, penstock.to_time(l.lease_ends_at) as lease_expires,
    l.consumer as leased_by, penstock.to_time(l.created_at) as created_on, l.created_by,
    penstock.to_time(l.expires_at) as message_expires, penstock.payload_json(l.payload, l.content_type) as message_json
from penstock.door as d
join penstock.door_live as l using (queue_id);

create or replace view penstock.door_history as
select d.door_id, h.seq, h.id as message_id, 3 as message_state_id, penstock.to_time(h.created_at) as created_on,
    penstock.to_time(h.at) as history_on, h.created_by, penstock.payload_json(h.payload, h.content_type) as message_json,
    coalesce(h.reason, 'completed') as reason_why
from penstock.door as d
join penstock.door_ended as h using (queue_id)
where h.outcome = 'succeeded';

create or replace view penstock.door_dead_letter as
select d.door_id, l.seq, l.id as message_id, o.message_state_id, penstock.to_time(l.created_at) as created_on,
    penstock.to_time(l.at) as dead_on, l.created_by, penstock.payload_json(l.payload, l.content_type) as message_json,
    coalesce(l.reason, l.outcome) as reason_why
from penstock.door as d
join penstock.door_ended as l using (queue_id)
join penstock.door_outcome as o using (outcome)
where l.outcome <> 'succeeded';

-- Everything that happened to messages in the primary group, and the rows that callers wrote. The number grows with
-- time: microseconds, then the order in which things were written down.
create or replace view penstock.door_audit as
select d.door_id, a.at * 1024 + a.place as audit_id, a.message_id, a.message_state_id,
    penstock.to_time(a.at) as audit_on, a.by as audit_by, a.reason as reason_why
from penstock.door as d
join penstock.queue as q on q.queue_id = d.queue_id
join penstock.door_setting as kept on kept.door_id = d.door_id and kept.setting_name = 'audit_retention'
left join penstock.reader as g on g.queue_id = q.queue_id and g.name = coalesce(q.primary_group, 'default')
cross join lateral (
    select t.at, t.place, i.message_id, t.message_state_id, t.by, coalesce(note.reason, t.reason) as reason
    from (
        select m.id, m.created_at, m.seq, m.created_at as at, 0 as place, 1 as message_state_id,
            coalesce(m.created_by, 'system') as by, 'enqueued' as reason, null::bigint as token
        from penstock.lane as n
        join penstock.log as m on m.lane_id = n.lane_id
        where n.queue_id = q.queue_id
        union all
        select h.id, h.created_at, null, h.created_at, 0, 1, coalesce(h.created_by, 'system'), 'enqueued', null
        from penstock.held as h
        where h.queue_id = q.queue_id
        union all
        select m.id, m.created_at, m.seq, c.at, 1 + c.entry % 1023, 2, c.consumer, 'dequeued', c.token
        from penstock.claim as c
        cross join lateral (
            select m.* from penstock.log as m
            where m.lane_id = c.lane_id and m.seq between c.first and c.last
                and (c.positions is null or c.positions @> m.seq)
            offset 0
        ) as m
        where c.group_id = g.group_id and c.n > 0
        union all
        select m.id, m.created_at, m.seq, s.at, 1 + s.entry % 1023,
            case
                when o.message_state_id is not null then o.message_state_id
                when s.event = 'receive' then 2
                when s.event = 'reschedule' then 4
                when s.event = 'lease_end' then 5
                when s.event = 'redrive' then 72
                else 1
            end,
            coalesce(s.by, 'system'),
            coalesce(s.reason, case s.event when 'receive' then 'dequeued' when 'ack' then 'completed' else s.event end),
            case s.event when 'receive' then s.token end
        from penstock.step as s
        cross join lateral (
            select m.* from penstock.log as m
            join penstock.lane as n on n.lane_id = m.lane_id and n.queue_id = s.queue_id
            where m.seq between s.first and s.last and (s.positions is null or s.positions @> m.seq)
            offset 0
        ) as m
        left join penstock.door_outcome as o on o.outcome = s.state
        -- What became due is not told apart from what is queued.
        where s.queue_id = q.queue_id and (s.group_id = g.group_id or s.group_id is null)
            and s.event not in ('due', 'batch_start')
    ) as t
    cross join lateral (
        select coalesce(t.id, penstock.made_id(t.created_at, (select salt from penstock.store), t.seq)) as message_id
    ) as i
    left join penstock.door_note as note
        on note.door_id = d.door_id and note.message_id = i.message_id and note.token = t.token
    union all
    select note.at, 1 + note.entry % 1023, note.message_id, note.state_id, note.by, note.reason
    from penstock.door_note as note
    where note.door_id = d.door_id and note.token is null
) as a
where penstock.to_time(a.at) >= clock_timestamp() - kept.setting_value::double precision * interval '1 day';

-- message of every schema of the LISTEN/NOTIFY conventions.
create or replace view penstock.door_message as
select d.door_id, l.seq as id, penstock.to_time(l.created_at) as created_at,
    penstock.payload_jsonb(l.payload, l.content_type) as message, penstock.to_time(l.lease_ends_at) as lock_expires_at
from penstock.door as d
join penstock.door_live as l using (queue_id)
where l.seq is not null
    and not exists (select 1 from penstock.door_removal as r where r.door_id = d.door_id and r.seq = l.seq);

create or replace view penstock.door_archive as
select d.door_id, a.seq as id, penstock.to_time(a.created_at) as created_at, penstock.to_time(a.at) as archived_at,
    penstock.payload_jsonb(a.payload, a.content_type) as message,
    (case a.outcome
        when 'succeeded' then 'success'
        when 'rejected' then 'rejected'
        when 'lease_expired' then 'lock_expired'
        else 'failed'
    end)::penstock.message_status as result,
    a.by as handled_by, a.reason as details
from penstock.door as d
join penstock.door_ended as a using (queue_id);
