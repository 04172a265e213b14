-- The contents of the tables of both conventions: live messages, archive and audit of a queue's primary group (of the
-- group `default` where it has none). All of it is read from the log and its companions; nothing is copied. See
-- functions/inspection/views.sql for how they are built.

-- Live messages: state is held, ready or leased, attempt counts the deliveries so far. A message held before it reached
-- the log has no position.
create or replace view penstock.compat_live as
select q.queue_id, m.position, coalesce(m.id, penstock.made_id(m.created_at, (select salt from penstock.store), m.position)) as id,
    m.created_at, coalesce(m.created_by, 'system') as created_by, m.content_type, m.payload, m.expires_at, m.state,
    m.attempt, m.available_at, m.lease_ends_at, m.consumer, m.token
from penstock.queue as q
left join penstock.group as g on g.queue_id = q.queue_id and g.name = coalesce(q.primary_group, 'default')
cross join lateral (
    -- not read yet
    select m.position, m.id, m.created_at, m.created_by, m.content_type, m.payload, m.expires_at, 'ready' as state,
        0 as attempt, coalesce(m.available_at, m.created_at) as available_at, null::bigint as lease_ends_at,
        null::text as consumer, null::bigint as token
    from penstock.lane as n
    left join lateral (
        select c.prev, c.snap, c.at_tx, c.at_position, c.used_up, c.above
        from penstock.cursor as c
        where c.group_id = g.group_id and c.lane_id = n.lane_id
        order by c.number desc
        limit 1
    ) as c on true
    join penstock.log as m on m.lane_id = n.lane_id
    where n.queue_id = q.queue_id and n.priority >= 0 and m.position > q.trimmed_position
        and (
            c.snap is null
            or not pg_visible_in_snapshot(m.tx, c.snap)
            or not pg_visible_in_snapshot(m.tx, c.prev) and not c.used_up and m.position > c.above
                and (m.tx, m.position) > (c.at_tx, c.at_position)
        )
        and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.position = m.position)
    union all
    -- first attempts in flight
    select m.position, m.id, m.created_at, m.created_by, m.content_type, m.payload, m.expires_at, 'leased', 1,
        coalesce(m.available_at, m.created_at), e.ends_at, e.consumer, e.token
    from penstock.lease as e
    join penstock.log as m
        on m.lane_id = e.lane_id and m.position between e.first and e.last and e.positions @> m.position
    where e.group_id = g.group_id
    union all
    -- those that are looked after one by one
    select t.position, t.id, t.created_at, t.created_by, t.content_type, t.payload, t.expires_at, t.state, t.attempt,
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

-- The states of the stored-procedure convention.
create or replace view penstock.compat_state as
select *
from (values
    (1, 'queued', true), (2, 'leased', true), (3, 'history', false), (32, 'history recovered', false),
    (4, 'rescheduled', false), (5, 'lease-expired', true), (6, 'message-expired', false), (7, 'dead-letter', false),
    (72, 'dead-letter-recovered', false), (77, 'dead-letter-cron', false), (88, 'dead-letter-retries-exceeded', false),
    (91, 'no queue items', false), (99, 'error', false)
) as state (message_state_id, state_title, is_fsm);

-- The state of the convention for each outcome.
create or replace view penstock.compat_outcome as
select *
from (values ('succeeded', 3), ('rejected', 7), ('failed', 88), ('lease_expired', 5), ('expired', 6), ('cancelled', 7))
as outcome (outcome, message_state_id);

-- message_queue of every queue schema.
create or replace view penstock.compat_queue as
select d.schema_id, l.id as message_id,
    case
        when l.state <> 'leased' then 1
        when penstock.to_time(l.lease_ends_at) > clock_timestamp() then 2
        else 5
    end as message_state_id,
    case l.state when 'leased' then l.attempt - 1 else l.attempt end as retries,
    penstock.to_time(l.available_at) as available_on, penstock.to_time(l.lease_ends_at) as lease_expires,
    l.consumer as leased_by, penstock.to_time(l.created_at) as created_on, l.created_by,
    penstock.to_time(l.expires_at) as message_expires, penstock.payload_json(l.payload, l.content_type) as message_json
from penstock.compat_schema as d
join penstock.compat_live as l using (queue_id);

-- Messages that have ended in the primary group.
create or replace view penstock.compat_ended as
select d.schema_id, a.*
from penstock.compat_schema as d
join penstock.queue as q on q.queue_id = d.queue_id
join penstock.message_archive as a on a.queue_id = d.queue_id and a.group_name = coalesce(q.primary_group, 'default');

-- message_history of every queue schema.
create or replace view penstock.compat_history as
select e.schema_id, e.position, e.id as message_id, 3 as message_state_id, e.created_at as created_on,
    e.ended_at as history_on, e.created_by, penstock.payload_json(e.payload, e.content_type) as message_json,
    coalesce(e.reason, 'completed') as reason_why
from penstock.compat_ended as e
where e.outcome = 'succeeded';

-- dead_letter of every queue schema.
create or replace view penstock.compat_dead_letter as
select e.schema_id, e.position, e.id as message_id, o.message_state_id, e.created_at as created_on, e.ended_at as dead_on,
    e.created_by, penstock.payload_json(e.payload, e.content_type) as message_json,
    coalesce(e.reason, e.outcome) as reason_why
from penstock.compat_ended as e
join penstock.compat_outcome as o using (outcome)
where e.outcome <> 'succeeded';

-- Audit entries of messages in the primary group, and the rows that callers wrote. The number grows with time:
-- microseconds, then the order of writing. Due messages are shown as queued.
create or replace view penstock.compat_audit as
select d.schema_id, penstock.from_time(a.at) * 1024 + a.place as audit_id, a.message_id, a.message_state_id,
    a.at as audit_on, a.by as audit_by, a.reason as reason_why
from penstock.compat_schema as d
join penstock.queue as q on q.queue_id = d.queue_id
join penstock.compat_setting as kept on kept.schema_id = d.schema_id and kept.setting_name = 'audit_retention'
cross join lateral (
    select t.at, case t.entry when 0 then 0 else 1 + t.entry % 1023 end as place, t.id as message_id,
        case
            when o.message_state_id is not null then o.message_state_id
            when t.event = 'receive' then 2
            when t.event = 'reschedule' then 4
            when t.event = 'lease_end' then 5
            when t.event = 'redrive' then 72
            else 1
        end as message_state_id,
        t.by,
        coalesce(note.reason, t.reason, case t.event
            when 'send' then 'enqueued'
            when 'receive' then 'dequeued'
            when 'ack' then 'completed'
            else t.event
        end) as reason
    from penstock.message_audit as t
    left join penstock.compat_outcome as o on o.outcome = t.state
    left join penstock.compat_note as note
        on note.schema_id = d.schema_id and note.message_id = t.id and note.token = t.token and t.event = 'receive'
    where t.queue_id = d.queue_id and t.event not in ('due', 'batch_start')
        and (t.group_name is null or t.group_name = coalesce(q.primary_group, 'default'))
    union all
    select penstock.to_time(note.at), 1 + note.entry % 1023, note.message_id, note.state_id, note.by, note.reason
    from penstock.compat_note as note
    where note.schema_id = d.schema_id and note.token is null
) as a
where a.at >= clock_timestamp() - kept.setting_value::double precision * interval '1 day';

-- message of every message schema.
create or replace view penstock.compat_message as
select d.schema_id, l.position as id, penstock.to_time(l.created_at) as created_at,
    penstock.payload_jsonb(l.payload, l.content_type) as message, penstock.to_time(l.lease_ends_at) as lock_expires_at
from penstock.compat_schema as d
join penstock.compat_live as l using (queue_id)
where l.position is not null
    and not exists (select 1 from penstock.compat_removal as r where r.schema_id = d.schema_id and r.position = l.position);

-- message_archive of every message schema: ended messages, and messages that were deleted from the table message
-- without an archive row until now, as they will be archived.
create or replace view penstock.compat_archive as
select e.schema_id, e.position as id, e.created_at, e.ended_at as archived_at,
    penstock.payload_jsonb(e.payload, e.content_type) as message,
    (case e.outcome
        when 'succeeded' then 'success'
        when 'rejected' then 'rejected'
        when 'lease_expired' then 'lock_expired'
        else 'failed'
    end)::penstock.message_status as result,
    e.by as handled_by, e.reason as details
from penstock.compat_ended as e
union all
select r.schema_id, l.position, penstock.to_time(l.created_at), coalesce(penstock.to_time(r.removed_at), clock_timestamp()),
    penstock.payload_jsonb(l.payload, l.content_type),
    (case
        when r.removed_at is not null then 'success'
        when l.state <> 'leased' then 'rejected'
        when penstock.to_time(l.lease_ends_at) <= clock_timestamp() then 'lock_expired'
        else 'success'
    end)::penstock.message_status,
    coalesce(l.consumer, nullif(current_setting('application_name', true), ''), session_user), 'deleted'
from penstock.compat_removal as r
join penstock.compat_schema as d using (schema_id)
join penstock.compat_live as l on l.queue_id = d.queue_id and l.position = r.position;
