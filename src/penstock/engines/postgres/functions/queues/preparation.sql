-- Making a queue, its primary group and its lanes ahead of a send in a long transaction.

-- Create the queue, its primary group and the lanes of these priorities. A send creates them too, but within a long
-- transaction others who need them would wait for its end.
create or replace function penstock.prepare(queue text, priorities integer[] default '{0}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', prepare.queue));
begin
    perform penstock._ensure_primary_group(q);
    perform penstock._check_integer('priority', priority, 0, 1000000) from unnest(priorities) as priority;
    perform penstock._ensure_lane(q.queue_id, priority, shard)
    from unnest(priorities) as priority, generate_series(0, q.shards - 1) as shard;
end
$$;

-- Prepare before a send in the caller's transaction; false when another transaction, perhaps the caller's own, is
-- creating one of them and does not end within a second: then the send creates the missing ones.
create or replace function penstock.prepare_briefly(queue text, priorities integer[]) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
begin
    perform penstock.prepare(prepare_briefly.queue, prepare_briefly.priorities);
    return true;
exception when lock_not_available then
    return false;
end
$$;

-- Whether everything exists already, as this transaction sees it.
create or replace function penstock.is_prepared(queue text, priorities integer[]) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(bool_and(
        (q.primary_group is null or q.primary_group_id is not null)
        and exists (select from penstock.lane as n where (n.queue_id, n.priority, n.shard) = (q.queue_id, one.priority, shard))
    ), false)
    from penstock.queue as q
    cross join unnest(is_prepared.priorities) as one (priority)
    cross join generate_series(0, q.shards - 1) as shard
    where q.name = is_prepared.queue
$$;
