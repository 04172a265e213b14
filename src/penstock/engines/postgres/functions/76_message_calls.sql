-- What inserts, updates and deletes on the tables of the LISTEN/NOTIFY conventions do. A message's id there is its
-- position, which is its own in the whole database: workers of two schemas listen on one channel.

-- insert into message: a send.
create or replace function penstock._message_insert() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    b record := penstock._behind(tg_argv[0]::integer);
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
    select l.seq, penstock.to_time(l.created_at) into new.id, new.created_at
    from penstock._door_find(b.queue_id, _sent) as l;
    return new;
end
$$;

-- update of message: locks a message that is free, lengthens the lock of one that is not, or gives it back.
create or replace function penstock._message_update() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    b record := penstock._behind(tg_argv[0]::integer);
    live penstock.door_live;
    _seconds double precision := extract(epoch from new.lock_expires_at) - penstock.now_us() / 1e6;
begin
    if new.id <> old.id or new.created_at <> old.created_at or new.message is distinct from old.message then
        raise exception using errcode = 'PN200',
            message = format('id, created_at and message of %I.message never change', tg_table_schema),
            hint = 'Only lock_expires_at can be updated: to lock a message, to lengthen the lock or to give it back.';
    elsif _seconds <= 0 then
        raise exception using errcode = 'PN100',
            message = format('lock_expires_at %s is in the past', new.lock_expires_at),
            hint = 'Lock until a time ahead, for example current_timestamp + interval ''1 minute''.';
    end if;
    live := penstock._door_find_at(b.queue_id, old.id);
    if live.lease_ends_at > penstock.now_us() then
        if old.lock_expires_at is null then
            return null;  -- somebody locked it a moment ago
        elsif new.lock_expires_at is not null then
            perform penstock.extend_each(b.queue, b."group", array[live.token], array[live.seq], _seconds);
        elsif penstock._door_settle(b.queue_id, live, 'nak', live.consumer, 'lock given back', 0) then
            perform penstock._door_announce(array[live.seq]);
        end if;
    elsif new.lock_expires_at is not null then
        if penstock._door_take(b.queue_id, old.id, penstock._session_name(), _seconds) is null then
            return null;
        end if;
    end if;
    new.lock_expires_at := penstock.to_time((penstock._door_find_at(b.queue_id, old.id)).lease_ends_at);
    return new;
end
$$;

-- Who locks, when the statement does not say: how the session calls itself.
create or replace function penstock._session_name() returns text
language sql stable as $$
    select coalesce(nullif(current_setting('application_name', true), ''), session_user)
$$;

-- delete from message: how it ended is said by an archive row of the same transaction, or else decided at its end.
create or replace function penstock._message_delete() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _door integer := tg_argv[0];
    b record := penstock._behind(_door);
begin
    insert into penstock.door_removal (door_id, seq) values (_door, old.id);
    if (penstock._door_find_at(b.queue_id, old.id)).seq is null then
        delete from penstock.door_removal where door_id = _door and seq = old.id;
        return null;  -- somebody else was faster
    end if;
    return old;
end
$$;

-- A transaction that deleted without an archive row ends: the message is done if it had been locked, else not wanted.
create or replace function penstock._finish_removal() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    b record := penstock._behind(new.door_id);
    live penstock.door_live;
begin
    delete from penstock.door_removal where door_id = new.door_id and seq = new.seq;
    if found then
        live := penstock._door_find_at(b.queue_id, new.seq);
        if live.seq is not null then
            perform penstock._message_end(
                b.queue_id, live, (case when live.state = 'leased' then 'success' else 'rejected' end)::penstock.message_status,
                coalesce(live.consumer, penstock._session_name()), 'deleted'
            );
        end if;
    end if;
    return null;
end
$$;

drop trigger if exists finish on penstock.door_removal;
create constraint trigger finish after insert on penstock.door_removal
deferrable initially deferred for each row execute function penstock._finish_removal();

-- insert into message_archive: ends a message that is locked, or that was deleted in this transaction.
create or replace function penstock._archive_insert() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _door integer := tg_argv[0];
    b record := penstock._behind(_door);
    live penstock.door_live;
begin
    if new.result is null or new.handled_by is null then
        raise exception using errcode = 'not_null_violation',
            message = format('result and handled_by of %I.message_archive cannot be null', tg_table_schema),
            hint = 'result is success, rejected, failed or lock_expired.';
    end if;
    -- Those that this transaction deleted come before others that look the same.
    select l.* into live
    from penstock.door_removal as r
    cross join lateral penstock._door_find_at(b.queue_id, r.seq) as l
    where r.door_id = _door and penstock._is_of(l, new.id, new.created_at, new.message)
    order by r.seq
    limit 1;
    if not found then
        select l.* into live
        from penstock.door_live as l
        where l.queue_id = b.queue_id and l.state = 'leased' and l.lease_ends_at > penstock.now_us()
            and penstock._is_of(l, new.id, new.created_at, new.message)
        order by l.seq
        limit 1;
    end if;
    if live.seq is null then
        perform penstock._check_isolation('an archive row whose message is not found locked');
        raise exception using errcode = 'PN201',
            message = format('no message of %I.message is locked that this archive row could be of', tg_table_schema),
            hint = 'A lock that ended is the end of the message: it was archived as lock_expired then.';
    end if;
    delete from penstock.door_removal where door_id = _door and seq = live.seq;
    perform penstock._message_end(b.queue_id, live, new.result, new.handled_by, new.details);
    new.id := live.seq;
    new.created_at := penstock.to_time(live.created_at);
    new.archived_at := penstock.to_time(penstock.now_us());
    return new;
end
$$;

-- Whether an archive row is of this message: by its id, or else by when it was sent and what it says.
create or replace function penstock._is_of(
    live penstock.door_live, _id bigint, _created_at timestamptz, _message jsonb
) returns boolean
language sql stable as $$
    select case
        when _id is not null then live.seq = _id
        else penstock.to_time(live.created_at) = _created_at
            and penstock.payload_jsonb(live.payload, live.content_type) = _message
    end
$$;

create or replace function penstock._message_end(
    _queue_id integer, live penstock.door_live, _result penstock.message_status, _by text, _details text
) returns void
language plpgsql as $$
begin
    if live.state <> 'leased' then
        live.token := penstock._door_take(_queue_id, live.seq, _by, 60);
    end if;
    if not penstock._door_settle(
        _queue_id, live,
        case _result
            when 'success' then 'ack'
            when 'rejected' then 'reject'
            when 'failed' then 'failed'
            else 'lease_expired'
        end,
        _by, _details
    ) then
        perform penstock._check_isolation('the end of a message whose lock is not found');
        raise exception using errcode = 'PN201',
            message = format('the lock of message %s has ended', live.seq),
            hint = 'That is the end of the message: it is archived as lock_expired.';
    end if;
end
$$;

-- delete from message_archive: removes a dead letter for good.
create or replace function penstock._archive_delete() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    b record := penstock._behind(tg_argv[0]::integer);
begin
    if old.result = 'success' then
        raise exception using errcode = 'PN200',
            message = format(
                'message %s of %I.message_archive succeeded and stays until its retention ends', old.id, tg_table_schema
            ),
            hint = 'The policy says how long: history_seconds. penstock.flush removes everything of the queue.';
    end if;
    perform penstock.purge(
        b.queue,
        array(
            select coalesce(d.id, penstock.made_id(d.created_at, d.seq))
            from penstock.dead_letter as d where d.group_id = b.group_id and d.seq = old.id
        ),
        b."group"
    );
    return old;
end
$$;

-- Tells the workers of the conventions, one by one, what they may lock.
create or replace function penstock._door_announce(_seqs bigint[]) returns void
language sql as $$
    select penstock._notify('new_message', seq::text) from unnest(_seqs) as seq
$$;

-- Tells of a dead message on their channel and in the server's log.
create or replace function penstock._door_mourn(_queue_id integer, _seq bigint, _outcome text) returns void
language plpgsql as $$
declare
    _name text;
begin
    for _name in select schema_name from penstock.door where queue_id = _queue_id and kind = 'message' loop
        raise warning using errcode = 'PN900', message = format(
            '%I.message_archive.id=%s has result=%s', _name, _seq,
            case _outcome when 'rejected' then _outcome when 'lease_expired' then 'lock_expired' else 'failed' end
        );
    end loop;
    perform penstock._notify('dead_message', _seq::text);
end
$$;

-- The share of the sweep of a queue: once a minute workers are told again of what waits, so that those who came late or
-- missed a notification find it; and audit rows past their retention go.
create or replace function penstock._door_sweep(_queue_id integer, _now bigint) returns void
language plpgsql as $$
declare
    d record;
begin
    for d in
        select t.door_id, t.kind, q.name, penstock._default_group(q) as group_name
        from penstock.door as t join penstock.queue as q using (queue_id)
        where t.queue_id = _queue_id and t.announced_at <= _now - 60000000
        for update of t skip locked
    loop
        if d.kind = 'message' then
            perform penstock._door_announce(penstock._next_positions(d.name, d.group_name, 1000));
        else
            perform penstock._door_clean_notes(d.door_id, 0);
        end if;
        update penstock.door set announced_at = _now where door_id = d.door_id;
    end loop;
end
$$;
