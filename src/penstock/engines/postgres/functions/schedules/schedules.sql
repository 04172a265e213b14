-- Schedules: cron rules that send messages.

-- Create or replace a schedule. The caller computes its ticks: _next_at is the first one from now, and is ignored when
-- the rule is unchanged, so that declaring schedules at every start loses none.
create or replace function penstock.schedule_put(
    _name text, _cron text, _timezone text, _queue text, _message jsonb, _catch_up text, _next_at bigint
) returns penstock.schedule
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue;
    s penstock.schedule;
begin
    select * into q from penstock.queue where name = _queue;
    perform penstock._check_stored_message(coalesce(_message, 'null'), coalesce(q.max_payload_bytes, 16777216));
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

-- Get a schedule; an error when it does not exist.
create or replace function penstock._get_schedule(_name text) returns penstock.schedule
language plpgsql as $$
declare
    s penstock.schedule;
begin
    select * into s from penstock.schedule where name = _name for update;
    if not found then
        raise exception using errcode = 'PN300', detail = 'schedule',
            message = format('there is no schedule %s', penstock._quote_value(_name));
    end if;
    return s;
end
$$;

-- Pause or resume a schedule; _next_at is the first tick from now.
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

-- Send the message of a schedule now, paused or not, and return its id. The ticks do not change.
create or replace function penstock.schedule_run(_name text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _tx xid8 := pg_current_xact_id();
    s penstock.schedule := penstock._get_schedule(_name);
    q penstock.queue := penstock._ensure_queue(s.queue);
    _message jsonb := penstock._tick_message(s, penstock.now_us());
    _ids text[];
begin
    _ids := penstock._send_rows(
        q, array[decode(_message ->> 'payload', 'base64')], array[_message ->> 'content_type'],
        jsonb_build_array(_message -> 'options'), _tx
    );
    perform penstock._wake_receivers(q.queue_id);
    return _ids[1];
end
$$;

-- The message of a schedule, with the schedule and the tick in its headers.
create or replace function penstock._tick_message(s penstock.schedule, _tick bigint) returns jsonb
language sql stable as $$
    select jsonb_set(
        s.message, '{options,headers}', to_jsonb((
            coalesce((s.message #>> '{options,headers}')::jsonb, '{}') || jsonb_build_object(
                'penstock-schedule', s.name, 'penstock-tick',
                to_char(penstock.to_time(_tick) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')
            )
        )::text)
    )
$$;

-- Remove a schedule; messages it has sent stay.
create or replace function penstock.unschedule(_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock._get_schedule(_name);
    delete from penstock.schedule where name = _name;
end
$$;

-- Send a message for each tick and advance the schedule; nothing is sent when another process has advanced it already.
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
        perform penstock._send_stored(penstock._ensure_queue(s.queue), penstock._tick_message(s, _tick));
    end loop;
    return _n;
end
$$;
