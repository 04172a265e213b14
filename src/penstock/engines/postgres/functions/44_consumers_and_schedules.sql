-- Registered consumers in birth order, and cron rules that send messages.

-- Living consumers, each with its place among those of its group.
create or replace view penstock.living_consumer as
select c.consumer_id as id, c.name, u.name as queue_name, g.name as group_name,
    row_number() over (partition by c.group_id order by c.consumer_id) - 1 as index,
    count(*) over (partition by c.group_id) as living, c.registered_at, c.heartbeat_at, c.heartbeat_seconds
from penstock.consumer as c
join penstock.reader as g using (group_id)
join penstock.queue as u using (queue_id);

-- The same in birth order.
create or replace function penstock.consumers(queue text default null)
returns table (
    id bigint, name text, queue_name text, group_name text, index bigint, living bigint, registered_at bigint,
    heartbeat_at bigint, heartbeat_seconds double precision
)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select * from penstock.living_consumer as c
    where consumers.queue is null or c.queue_name = consumers.queue
    order by c.id
$$;

drop function if exists penstock.register(text, text, text, double precision);
-- A place at the end of the birth order, which it gives back; one that is there already keeps its place.
create or replace function penstock.register(
    queue text, "group" text, name text, heartbeat_seconds double precision default 5
) returns setof penstock.living_consumer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', register.queue));
    g penstock.reader := penstock._ensure_group(
        q, penstock._check_name('group', coalesce(register."group", penstock._default_group(q)))
    );
    _now bigint := penstock.now_us();
begin
    perform penstock._check_leasing(q, g), penstock._check_seconds('heartbeat_seconds', register.heartbeat_seconds);
    insert into penstock.consumer (group_id, name, registered_at, heartbeat_at, heartbeat_seconds)
    values (
        g.group_id, penstock._check_name('consumer', register.name), _now, _now, register.heartbeat_seconds
    )
    on conflict (group_id, name) do update
    set heartbeat_at = excluded.heartbeat_at, heartbeat_seconds = excluded.heartbeat_seconds;
    return query
    select * from penstock.living_consumer as c
    where (c.queue_name, c.group_name, c.name) = (q.name, g.name, register.name);
end
$$;

drop function if exists penstock.heartbeat(text, text, text);
-- Keep the consumer alive, and give back its place; refused when a sweep has removed it.
create or replace function penstock.heartbeat(queue text, "group" text, name text) returns setof penstock.living_consumer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(heartbeat.queue);
    g penstock.reader := penstock._get_group(q, coalesce(heartbeat."group", penstock._default_group(q)));
begin
    update penstock.consumer set heartbeat_at = penstock.now_us()
    where group_id = g.group_id and name = heartbeat.name;
    if not found then
        raise exception using errcode = 'PN205', message = format(
            'consumer %s of queue %s is not registered: it never was, or it missed its heartbeats and must register again',
            penstock._shown(heartbeat.name), penstock._shown(q.name)
        );
    end if;
    -- In the same transaction, which holds the row: a moment later a sweep may have removed it.
    return query
    select * from penstock.living_consumer as c
    where (c.queue_name, c.group_name, c.name) = (q.name, g.name, heartbeat.name);
end
$$;

-- Remove the consumer and end its leases at once; counts the messages let go.
create or replace function penstock.deregister(queue text, "group" text, name text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(deregister.queue);
    g penstock.reader := penstock._get_group(q, coalesce(deregister."group", penstock._default_group(q)));
begin
    delete from penstock.consumer where group_id = g.group_id and name = deregister.name;
    return penstock._reclaim(q, g, deregister.name, penstock.now_us(), 2147483647, 2147483647);
end
$$;

-- Remove consumers that have missed two heartbeats. What they held is free at once.
create or replace function penstock._remove_missing(_now bigint) returns integer
language plpgsql as $$
declare
    missing record;
    q penstock.queue;
    g penstock.reader;
    _count integer := 0;
begin
    for missing in
        delete from penstock.consumer where consumer_id in (
            select consumer_id from penstock.consumer
            where heartbeat_at + 2 * heartbeat_seconds * 1000000 < _now
            for update skip locked
        )
        returning group_id, name
    loop
        select * into g from penstock.reader where group_id = missing.group_id;
        select * into q from penstock.queue where queue_id = g.queue_id;
        perform penstock._reclaim(q, g, missing.name, _now, 2147483647, 2147483647);
        _count := _count + 1;
    end loop;
    return _count;
end
$$;

-- Make or replace a schedule. Its ticks are computed by whoever calls: _next_at is the first one from now, and is kept
-- back when the rule stayed the same, so that declaring schedules at every start loses none.
create or replace function penstock.schedule_put(
    _name text, _cron text, _timezone text, _queue text, _message jsonb, _catch_up text, _next_at bigint
) returns penstock.schedule
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue;
    s penstock.schedule;
begin
    select * into q from penstock.queue where name = _queue;
    perform penstock._check_stored(coalesce(_message, 'null'), coalesce(q.max_payload_bytes, 16777216));
    insert into penstock.schedule as u (name, cron, timezone, queue, message, catch_up, next_at)
    values (_name, _cron, _timezone, _queue, _message, _catch_up, _next_at)
    on conflict (name) do update
    set cron = excluded.cron, timezone = excluded.timezone, queue = excluded.queue, message = excluded.message,
        catch_up = excluded.catch_up,
        next_at = case when u.paused or (u.cron, u.timezone) = (excluded.cron, excluded.timezone) then u.next_at
            else excluded.next_at end
    returning * into s;
    return s;
end
$$;

-- A schedule that must be there.
create or replace function penstock._get_schedule(_name text) returns penstock.schedule
language plpgsql as $$
declare
    s penstock.schedule;
begin
    select * into s from penstock.schedule where name = _name for update;
    if not found then
        raise exception using errcode = 'PN300', detail = 'schedule',
            message = format('there is no schedule %s', penstock._shown(_name));
    end if;
    return s;
end
$$;

-- Stop or go on sending; _next_at is the first tick from now.
create or replace function penstock.schedule_pause(_name text, _paused boolean, _next_at bigint) returns penstock.schedule
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    s penstock.schedule := penstock._get_schedule(_name);
begin
    if s.paused <> _paused then
        update penstock.schedule set paused = _paused, next_at = case when not _paused then _next_at end
        where name = _name
        returning * into s;
    end if;
    return s;
end
$$;

-- Remove a schedule; what it sent stays.
create or replace function penstock.unschedule(_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock._get_schedule(_name);
    delete from penstock.schedule where name = _name;
end
$$;

-- Send a message for each tick and move on to the next: one who was faster has moved on already, and nothing is sent.
create or replace function penstock.schedule_fire(
    _name text, _expected_at bigint, _ticks bigint[], _next_at bigint
) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    s penstock.schedule;
    _n integer := cardinality(_ticks);
    _tick bigint;
begin
    update penstock.schedule set next_at = _next_at, last_at = coalesce(_ticks[_n], last_at)
    where name = _name and next_at = _expected_at and not paused
    returning * into s;
    if not found then
        return 0;
    end if;
    foreach _tick in array coalesce(_ticks, '{}') loop
        perform penstock._send_stored(penstock._ensure_queue(s.queue), jsonb_set(
            s.message, '{options,headers}', to_jsonb((
                coalesce((s.message #>> '{options,headers}')::jsonb, '{}') || jsonb_build_object(
                    'penstock-schedule', s.name, 'penstock-tick',
                    to_char(penstock.to_time(_tick) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')
                )
            )::text)
        ));
    end loop;
    return _n;
end
$$;
