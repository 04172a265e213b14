-- Inserts, updates and deletes on the table message of the LISTEN/NOTIFY convention. A message's id there is its
-- position, which is unique in the whole database: workers of two schemas listen on one channel.
--
-- Times in these tables have no time zone: they are in the time zone of the session. A column that a schema of an
-- earlier version left with a time zone works too, because each value is cast.

-- insert into message: a send.
create or replace function penstock._message_insert() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    b record := penstock._compat_target(tg_argv[0]::integer);
    _sent uuid;
begin
    if coalesce(new.id::text, new.created_at::text, new.lock_expires_at::text) is not null then
        raise exception using errcode = 'PN100',
            message = format('id, created_at and lock_expires_at of %I.message are set by the queue', tg_table_schema),
            hint = format('insert into %I.message (message) values (…)', tg_table_schema);
    elsif new.message is null then
        raise exception using errcode = 'not_null_violation',
            message = format('message of %I.message cannot be null', tg_table_schema),
            hint = 'A message is any JSON value; for JSON''s own null write ''null''.';
    end if;
    _sent := penstock.send(b.queue, new.message);
    select l.position, penstock.to_time(l.created_at) into new.id, new.created_at
    from penstock._compat_find(b.queue_id, _sent) as l;
    return new;
end
$$;

-- update of message: lock a free message, extend the lock of a locked one, or release it.
create or replace function penstock._message_update() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    b record := penstock._compat_target(tg_argv[0]::integer);
    live penstock.compat_live;
    _seconds double precision := extract(epoch from new.lock_expires_at::timestamptz) - penstock.now_us() / 1e6;
begin
    if new.id <> old.id or new.created_at <> old.created_at or new.message is distinct from old.message then
        raise exception using errcode = 'PN200',
            message = format('id, created_at and message of %I.message never change', tg_table_schema),
            hint = 'Only lock_expires_at can be updated: to lock a message, to lengthen the lock or to give it back.';
    elsif _seconds <= 0 and new.lock_expires_at::timestamptz > transaction_timestamp() then
        return null;  -- the lock ended while the statement waited
    elsif _seconds <= 0 then
        raise exception using errcode = 'PN100',
            message = format('lock_expires_at %s is in the past', new.lock_expires_at),
            hint = 'Lock until a time ahead, for example current_timestamp + interval ''1 minute''.';
    elsif _seconds > 3162240000 then
        raise exception using errcode = 'PN100',
            message = format('lock_expires_at %s is more than a century ahead', new.lock_expires_at),
            hint = 'Lock for as long as the work may take, for example current_timestamp + interval ''1 minute''.';
    end if;
    live := penstock._compat_find_at(b.queue_id, old.id);
    if live.lease_ends_at > penstock.now_us() then
        if old.lock_expires_at is null then
            return null;  -- somebody locked it a moment ago
        elsif new.lock_expires_at is not null then
            perform penstock.extend_each(b.queue, b."group", array[live.token], array[live.position], _seconds);
        elsif penstock._compat_settle(b.queue_id, live, 'nak', live.consumer, 'lock given back', 0) then
            perform penstock._compat_notify_new(array[live.position]);
        end if;
    elsif new.lock_expires_at is not null then
        if penstock._compat_lease(b.queue_id, old.id, penstock._session_name(), _seconds) is null then
            return null;
        end if;
    end if;
    new.lock_expires_at := penstock.to_time((penstock._compat_find_at(b.queue_id, old.id)).lease_ends_at);
    return new;
end
$$;

-- The name of the locker when the statement gives none: the application name of the session.
create or replace function penstock._session_name() returns text
language sql stable as $$
    select coalesce(nullif(current_setting('application_name', true), ''), session_user)
$$;

-- delete from message: the outcome follows from an archive row of the same transaction, or of a later one within a minute.
create or replace function penstock._message_delete() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _schema_id integer := tg_argv[0];
    b record := penstock._compat_target(_schema_id);
begin
    insert into penstock.compat_removal (schema_id, position) values (_schema_id, old.id) on conflict do nothing;
    if not found then
        return null;  -- somebody else was faster
    elsif (penstock._compat_find_at(b.queue_id, old.id)).position is null then
        delete from penstock.compat_removal where schema_id = _schema_id and position = old.id;
        return null;
    end if;
    return old;
end
$$;

-- Deferred trigger: hold or end the messages that a transaction deleted without archive rows. Those that nobody had
-- locked are leased together first.
create or replace function penstock._finish_removal() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    b record;
    live penstock.compat_live;
    lease record;
    _positions bigint[];
    _position bigint;
begin
    select array_agg(position order by position) into _positions
    from penstock.compat_removal where schema_id = new.schema_id and removed_at is null;
    if _positions is null then
        return null;
    end if;
    b := penstock._compat_target(new.schema_id);
    _positions := penstock._hold_removals(new.schema_id, b.queue_id, b.queue, b."group", _positions);
    delete from penstock.compat_removal where schema_id = new.schema_id and removed_at is null;
    select * into lease
    from penstock._compat_lease_all(
        b.queue_id,
        array(
            select one from unnest(_positions) as one
            where (penstock._compat_find_at(b.queue_id, one)).state in ('ready', 'held')
        ),
        penstock._session_name(), 60
    );
    foreach _position in array _positions loop
        live := penstock._compat_find_at(b.queue_id, _position);
        if live.position is null or penstock._message_end(
            b.queue_id, live,
            (case
                when live.token = lease.token or live.state <> 'leased' then 'rejected'
                when live.lease_ends_at <= penstock.now_us() then 'lock_expired'
                else 'success'
            end)::penstock.message_status,
            coalesce(live.consumer, penstock._session_name()), 'deleted'
        ) then
            continue;
        end if;
        perform penstock._check_isolation('the end of a message whose lock is not found');
        if (penstock._compat_find_at(b.queue_id, _position)).position is not null then
            raise exception using errcode = 'PN200',
                message = format('message %s of queue %s cannot be deleted now', _position, penstock._quote_value(b.queue)),
                hint = 'Its queue is paused, or it waits for another attempt, or somebody else is taking it.';
        end if;
    end loop;
    return null;
end
$$;

-- Hold the removals of locked messages, because a worker that commits each statement inserts its archive row in the
-- next transaction. Their leases are extended, so that nothing else ends them meanwhile. Returns the other positions.
create or replace function penstock._hold_removals(
    _schema_id integer, _queue_id integer, _queue text, _group text, _positions bigint[]
) returns bigint[]
language plpgsql as $$
declare
    _now bigint := penstock.now_us();
    _hour constant bigint := 3600000000;
    live penstock.compat_live;
    _others bigint[] := '{}';
    _position bigint;
begin
    foreach _position in array _positions loop
        live := penstock._compat_find_at(_queue_id, _position);
        if live.state = 'leased' and live.lease_ends_at > _now
            and (penstock.extend_each(_queue, _group, array[live.token], array[_position], 3600))[1] >= _now + _hour then
            update penstock.compat_removal set removed_at = _now, created_at = live.created_at
            where schema_id = _schema_id and position = _position;
        else
            _others := _others || _position;
        end if;
    end loop;
    return _others;
end
$$;

-- End the messages of a queue whose removals were held since before a time: their workers wrote no archive row.
create or replace function penstock._finish_held_removals(_queue_id integer, _before bigint) returns void
language plpgsql as $$
declare
    r record;
    live penstock.compat_live;
begin
    for r in
        select d.schema_id, d.position
        from penstock.compat_removal as d join penstock.compat_schema as t using (schema_id)
        where t.queue_id = _queue_id and d.removed_at <= _before
        order by d.position
        for update of d skip locked
    loop
        live := penstock._compat_find_at(_queue_id, r.position);
        if live.state = 'leased' then
            perform penstock._message_end(_queue_id, live, 'success', coalesce(live.consumer, 'system'), 'deleted');
        end if;
        delete from penstock.compat_removal where schema_id = r.schema_id and position = r.position;
    end loop;
end
$$;

drop trigger if exists finish on penstock.compat_removal;

create constraint trigger finish after insert on penstock.compat_removal
deferrable initially deferred for each row execute function penstock._finish_removal();

-- Notify the workers of the convention of each message that they may lock.
create or replace function penstock._compat_notify_new(_positions bigint[]) returns void
language sql as $$
    select penstock._send_notification('new_message', position::text) from unnest(_positions) as position
$$;

-- Notify of a dead message on the convention's channel and in the server log.
create or replace function penstock._compat_notify_dead(_queue_id integer, _position bigint, _outcome text) returns void
language plpgsql as $$
declare
    _name text;
begin
    for _name in select schema_name from penstock.compat_schema where queue_id = _queue_id and kind = 'message' loop
        raise warning using errcode = 'PN900', message = format(
            '%I.message_archive.id=%s has result=%s', _name, _position,
            case _outcome when 'rejected' then _outcome when 'lease_expired' then 'lock_expired' else 'failed' end
        );
    end loop;
    perform penstock._send_notification('dead_message', _position::text);
end
$$;

-- The part of a queue's sweep for message schemas: once per minute of the clock notify workers again of waiting
-- messages, for those that came late or missed a notification, and delete audit rows past their retention. Minutes of
-- the clock and not sixty seconds, because pg_cron runs once in each of them, a little earlier or later.
create or replace function penstock._compat_sweep(_queue_id integer, _now bigint) returns void
language plpgsql as $$
declare
    d record;
begin
    for d in
        select t.schema_id, t.kind, q.name, penstock._default_group(q) as group_name
        from penstock.compat_schema as t join penstock.queue as q using (queue_id)
        where t.queue_id = _queue_id and t.announced_at / 60000000 <> _now / 60000000
        for no key update of t skip locked
    loop
        if d.kind = 'message' then
            perform penstock._compat_notify_new(penstock._next_positions(d.name, d.group_name, 10000));
        else
            perform penstock._compat_clean_notes(d.schema_id, 0);
        end if;
        update penstock.compat_schema set announced_at = _now where schema_id = d.schema_id;
    end loop;
end
$$;
