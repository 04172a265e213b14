-- name: server_version
-- The version of the server as text.
select current_setting('server_version');

-- name: durability
-- Settings without which a commit may be lost.
select name, setting from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes');

-- name: foreign_schemas
-- Compatibility schemas that another role owns or may write to, and those without a row.
select d.schema_name, case
    when penstock._is_bound(d) then penstock._why_foreign(d.schema_oid)
    else 'it was not made in this database, or belongs to somebody else'
end
from penstock.compat_schema as d
where penstock._is_bound(d) is not true or penstock._why_foreign(d.schema_oid) is not null
union
select n.nspname::text, 'no row of penstock.compat_schema is about it'
from pg_trigger as t
join pg_class as c on c.oid = t.tgrelid
join pg_namespace as n on n.oid = c.relnamespace
where t.tgfoid in ('penstock._change_setting'::regproc, 'penstock._message_insert'::regproc)
    and not exists (select 1 from penstock.compat_schema as d where d.schema_oid = n.oid or d.schema_name = n.nspname)
order by 1, 2;

-- name: long_transactions
-- Long transactions of this database.
select pid, extract(epoch from clock_timestamp() - xact_start)::double precision
from pg_stat_activity
where datname = current_database() and xact_start < clock_timestamp() - %s * interval '1 second'
    and pid <> pg_backend_pid() and backend_type = 'client backend';

-- name: long_prepared_writes
-- Long prepared transactions of this database.
select gid, extract(epoch from clock_timestamp() - prepared)::double precision
from pg_prepared_xacts
where database = current_database() and prepared < clock_timestamp() - %s * interval '1 second';

-- name: stuck_leases
-- Leases that ended more than a minute ago and were not reclaimed.
select q.name, g.name, count(*)
from penstock.lease as e
join penstock.group as g using (group_id)
join penstock.queue as q using (queue_id)
where e.ends_at < penstock.now_us() - 60000000
group by q.name, g.name;

-- name: late_schedules
-- Schedules whose tick is more than two minutes overdue.
select name from penstock.schedule where next_at < penstock.now_us() - 120000000;

-- name: late_held
-- Queues with messages that are more than a minute overdue.
select q.name, count(*)
from penstock.held as h
join penstock.queue as q using (queue_id)
where not h.waiting and h.available_at < penstock.now_us() - 60000000
group by q.name;

-- name: paused_queues
-- Paused queues.
select name from penstock.queue where paused;

-- name: silent_groups
-- Groups with unread messages that were not used for an hour.
select distinct q.name, g.name
from penstock.group as g
join penstock.queue as q using (queue_id)
join penstock.lane as n using (queue_id)
where g.used_at < penstock.now_us() - 3600000000 and g.stream_mark is null and n.priority >= 0
    and penstock._has_unread(g.group_id, n.lane_id, q.trimmed_position);

-- name: carried_groups
-- Idle groups that lost messages to trimming in the last week.
select q.name, s.reason
from penstock.audit as s
join penstock.queue as q using (queue_id)
where s.last = 0 and s.at > penstock.now_us() - 7 * 86400000000;

-- name: dead_letter_count
-- The number of dead letters.
select count(*) from penstock.dead_letter;

-- name: open_batches
-- Batches that have been open for more than a day.
select q.name, b.name
from penstock.batch as b
join penstock.queue as q using (queue_id)
where b.state = 'open' and b.created_at < penstock.now_us() - 86400000000;
