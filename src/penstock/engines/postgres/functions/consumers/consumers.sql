-- Registered consumers in birth order, and their heartbeats.

-- Living consumers, each with its index in its group.
create or replace view penstock.living_consumer as
select c.consumer_id as id, c.name, u.name as queue_name, g.name as group_name,
    row_number() over (partition by c.group_id order by c.consumer_id) - 1 as index,
    count(*) over (partition by c.group_id) as living, c.registered_at, c.heartbeat_at, c.heartbeat_seconds,
    c.max_missed_heartbeats, c.heartbeats_per_sweep
from penstock.consumer as c
join penstock.group as g using (group_id)
join penstock.queue as u using (queue_id);

-- Living consumers in birth order.
create or replace function penstock.consumers(queue text default null) returns setof penstock.living_consumer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select * from penstock.living_consumer as c
    where consumers.queue is null or c.queue_name = consumers.queue
    order by c.id
$$;

-- Register a consumer at the end of the birth order and return its index; a registered one keeps its place. A consumer
-- that misses more than max_missed_heartbeats is dead; with every heartbeats_per_sweep-th heartbeat of its own it
-- removes the dead ones of its group.
create or replace function penstock.register(
    queue text, "group" text, name text, heartbeat_seconds double precision default 5,
    max_missed_heartbeats integer default 1, heartbeats_per_sweep integer default 10
) returns setof penstock.living_consumer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', register.queue));
    g penstock.group := penstock._ensure_group(
        q, penstock._check_name('group', coalesce(register."group", penstock._default_group(q)))
    );
    _now bigint := penstock.now_us();
begin
    perform penstock._refuse_stream_group(q, g), penstock._check_seconds('heartbeat_seconds', register.heartbeat_seconds),
        penstock._check_integer('max_missed_heartbeats', register.max_missed_heartbeats, 0, 1000000),
        penstock._check_integer('heartbeats_per_sweep', register.heartbeats_per_sweep, 1, 1000000);
    insert into penstock.consumer (
        group_id, name, registered_at, heartbeat_at, heartbeat_seconds, max_missed_heartbeats, heartbeats_per_sweep
    )
    values (
        g.group_id, penstock._check_name('consumer', register.name), _now, _now, register.heartbeat_seconds,
        register.max_missed_heartbeats, register.heartbeats_per_sweep
    )
    on conflict (group_id, name) do update
    set heartbeat_at = excluded.heartbeat_at, heartbeat_seconds = excluded.heartbeat_seconds,
        max_missed_heartbeats = excluded.max_missed_heartbeats, heartbeats_per_sweep = excluded.heartbeats_per_sweep;
    delete from penstock.removed_consumer where group_id = g.group_id and name = register.name;
    return query
    select * from penstock.living_consumer as c
    where (c.queue_name, c.group_name, c.name) = (q.name, g.name, register.name);
end
$$;

-- Keep the consumer alive and return its index; refused when it was removed. Every heartbeats_per_sweep-th heartbeat
-- removes the dead consumers of its group.
create or replace function penstock.heartbeat(queue text, "group" text, name text) returns setof penstock.living_consumer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(heartbeat.queue);
    g penstock.group := penstock._get_group(q, coalesce(heartbeat."group", penstock._default_group(q)));
    _is_turn_to_sweep boolean;
begin
    update penstock.consumer set heartbeat_at = penstock.now_us(), heartbeats = heartbeats + 1
    where group_id = g.group_id and name = heartbeat.name
    returning heartbeats % heartbeats_per_sweep = 0 into _is_turn_to_sweep;
    if not found then
        perform penstock._refuse_consumer(q.name, heartbeat.name);
    end if;
    if _is_turn_to_sweep then
        perform penstock._remove_dead_consumers(penstock.now_us(), g.group_id);
    end if;
    -- In the same transaction, which holds the row: a moment later a sweep may have removed it.
    return query
    select * from penstock.living_consumer as c
    where (c.queue_name, c.group_name, c.name) = (q.name, g.name, heartbeat.name);
end
$$;

-- Refuse a removed consumer until it registers again.
create or replace function penstock._refuse_consumer(_queue text, _name text) returns void
language plpgsql as $$
begin
    raise exception using errcode = 'PN205', message = format(
        'consumer %s of queue %s is not registered: it never was, or it missed its heartbeats and must register again',
        penstock._quote_value(_name), penstock._quote_value(_queue)
    );
end
$$;

-- Remove the consumer and end its leases at once. Returns the number of released messages.
create or replace function penstock.deregister(queue text, "group" text, name text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(deregister.queue);
    g penstock.group := penstock._get_group(q, coalesce(deregister."group", penstock._default_group(q)));
begin
    delete from penstock.consumer where group_id = g.group_id and name = deregister.name;
    return penstock._reclaim_leases(q, g, deregister.name, penstock.now_us(), 2147483647, 2147483647);
end
$$;

-- Remove consumers that have missed too many heartbeats, of all groups or of one. Their leases end at once, and they
-- receive nothing until they register again or a day has passed.
create or replace function penstock._remove_dead_consumers(_now bigint, _group_id integer default null) returns integer
language plpgsql as $$
declare
    missing record;
    q penstock.queue;
    g penstock.group;
    _count integer := 0;
begin
    for missing in
        delete from penstock.consumer where consumer_id in (
            select consumer_id from penstock.consumer
            where (_group_id is null or group_id = _group_id)
                and heartbeat_at + (max_missed_heartbeats + 1) * heartbeat_seconds * 1000000 < _now
            for update skip locked
        )
        returning group_id, name
    loop
        insert into penstock.removed_consumer (group_id, name, removed_at) values (missing.group_id, missing.name, _now)
        on conflict (group_id, name) do update set removed_at = excluded.removed_at;
        select * into g from penstock.group where group_id = missing.group_id;
        select * into q from penstock.queue where queue_id = g.queue_id;
        -- The rows of a deleted queue are removed with it.
        continue when not found;
        perform penstock._reclaim_leases(q, g, missing.name, _now, 2147483647, 2147483647);
        _count := _count + 1;
    end loop;
    if _count > 0 then
        delete from penstock.removed_consumer where removed_at < _now - 86400000000;
    end if;
    return _count;
end
$$;
