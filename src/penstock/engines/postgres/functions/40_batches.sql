-- Batches: messages held until started, with an end message when all are finished.

drop function if exists penstock._newest_batch(penstock.queue, text);
-- The newest batch of a name, or the first one after a number.
create or replace function penstock._meant_batch(q penstock.queue, _name text, _after bigint) returns penstock.batch
language plpgsql stable as $$
declare
    b penstock.batch;
begin
    if _after is null then
        select * into b from penstock.batch where queue_id = q.queue_id and name = _name order by batch_id desc limit 1;
    else
        select * into b from penstock.batch
        where queue_id = q.queue_id and name = _name and batch_id > _after
        order by batch_id limit 1;
    end if;
    return b;
end
$$;

-- The number before the batch of a name that is meant by one who comes now: before the newest. One who opens a batch means
-- the next one when the newest has ended.
create or replace function penstock.batch_mark(queue text, name text, opens boolean) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce((
        select case when opens and b.state in ('finished', 'cancelled') then b.batch_id else b.batch_id - 1 end
        from penstock.queue as q join penstock.batch as b using (queue_id)
        where q.name = batch_mark.queue and b.name = batch_mark.name
        order by b.batch_id desc
        limit 1
    ), 0)
$$;

drop function if exists penstock._joined(penstock.queue, text, bigint);
-- The batch that a message goes into: made when there is none. One that has ended takes no more, and is not made anew in
-- silence: nobody would start it. The row is shared with other senders until the transaction ends, so that a cancellation
-- finds all members, and whoever ends the last member finds this one.
create or replace function penstock._joined(q penstock.queue, _name text, _after bigint, _now bigint)
returns penstock.batch
language plpgsql as $$
declare
    b penstock.batch := penstock._ensured_batch(q, _name, _after, _now);
begin
    -- It may have ended meanwhile, and be gone.
    select * into b from penstock.batch where batch_id = b.batch_id for share;
    if not found then
        b.state := 'finished';
    end if;
    if b.state in ('cancelling', 'finished', 'cancelled') then
        raise exception using errcode = 'PN203', message = format(
            'batch %s of queue %s %s and takes no more messages%s', penstock._shown(_name), penstock._shown(q.name),
            case b.state when 'cancelling' then 'was cancelled' else 'is ' || b.state end,
            case when b.state <> 'cancelling' then ': open a new one of that name '
                '(queue.batch, batch_open, QBATCH OPEN, penstock batch open)' end
        );
    end if;
    return b;
end
$$;

-- The batch in whatever state, made when there is none: one at a time, so that two senders do not make two.
create or replace function penstock._ensured_batch(q penstock.queue, _name text, _after bigint, _now bigint)
returns penstock.batch
language plpgsql as $$
declare
    b penstock.batch := penstock._meant_batch(q, _name, _after);
begin
    if q.primary_group is null then
        raise exception using errcode = 'PN100', message = format(
            'queue %s has no primary group: batch %s could not end', penstock._shown(q.name), penstock._shown(_name)
        );
    end if;
    if b.batch_id is null then
        perform pg_advisory_xact_lock(hashtextextended(format('penstock batch %s %s', q.queue_id, _name), 0));
        b := penstock._meant_batch(q, _name, _after);
        if b.batch_id is null then
            insert into penstock.batch (queue_id, name, created_at) values (q.queue_id, _name, _now) returning * into b;
        end if;
    end if;
    return b;
end
$$;

-- Send the end or the abort message with the last member's ending: in the same transaction, so exactly once. Two who end
-- the last two members wait for each other at the row of the batch, and the second one sees that all have ended.
create or replace function penstock._end_batch_if_done(_batch_id bigint, _now bigint) returns void
language plpgsql as $$
declare
    b penstock.batch;
    q penstock.queue;
    _message jsonb;
begin
    select * into b from penstock.batch where batch_id = _batch_id for update;
    if b.batch_id is null or b.state not in ('running', 'cancelling')
        or exists (select 1 from penstock.member where batch_id = _batch_id)
        or exists (select 1 from penstock.held where batch_id = _batch_id) then
        return;
    end if;
    update penstock.batch set state = case b.state when 'running' then 'finished' else 'cancelled' end, ended_at = _now
    where batch_id = _batch_id;
    _message := case b.state when 'running' then b.end_message else b.abort_message end;
    if _message is not null then
        select * into q from penstock.queue where queue_id = b.queue_id;
        perform penstock._send_stored(q, _message);
    end if;
end
$$;

drop function if exists penstock._send_stored(penstock.queue, jsonb[]);
-- Send a message that was stored as JSON: {payload (base64), content_type, options}.
create or replace function penstock._send_stored(q penstock.queue, _message jsonb) returns void
language plpgsql as $$
declare
    _tx xid8 := pg_current_xact_id();
begin
    perform penstock._send(
        q, array[decode(_message ->> 'payload', 'base64')], array[_message ->> 'content_type'],
        jsonb_build_array(_message -> 'options'), _tx
    );
    perform penstock._wake(q.queue_id);
end
$$;

-- Refuse what could not be sent when its time comes: the last message of a batch could not be settled then.
create or replace function penstock._check_stored(_message jsonb, _most integer) returns void
language plpgsql as $$
declare
    _payload bytea;
begin
    begin
        _payload := decode(_message ->> 'payload', 'base64');
    exception when data_exception then
        _payload := null;
    end;
    if _payload is null then
        raise exception using errcode = 'PN100', message = format(
            'a message to be sent later is {"payload": base64, "content_type": text, "options": {}}, not %s',
            penstock._shown(_message::text)
        ), hint = 'batch_set_end and batch_set_abort take any JSON value.';
    end if;
    perform penstock._check_messages(
        array[_payload], array[_message ->> 'content_type'], jsonb_build_array(_message -> 'options')
    );
    perform penstock._check_sizes(array[_payload], _most);
end
$$;

-- What can be seen of a batch.
create or replace function penstock._batch_info(
    b penstock.batch, out name text, out state text, out total bigint, out remaining bigint
)
language sql stable as $$
    select b.name, b.state, (select coalesce(sum(j.n), 0) from penstock.joining as j where j.batch_id = b.batch_id),
        (select count(*) from penstock.member as m where m.batch_id = b.batch_id)
            + (select count(*) from penstock.held as h where h.batch_id = b.batch_id)
$$;

drop function if exists penstock.batch_open(text, text, jsonb, jsonb);
-- Make the batch unless it is open or running, and set its end or abort message when given. With a number the first batch
-- of the name after it is meant, which is not made anew when it has ended.
create or replace function penstock.batch_open(
    queue text, name text, end_message jsonb default null, abort_message jsonb default null, after bigint default null,
    out batch text, out state text, out total bigint, out remaining bigint
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', batch_open.queue));
    b penstock.batch;
begin
    if batch_open.end_message #>> '{options,address}' is not null
        or batch_open.abort_message #>> '{options,address}' is not null then
        raise exception using errcode = 'PN100', message = format(
            'the end or abort message of batch %s cannot have an address', penstock._shown(batch_open.name)
        );
    end if;
    perform penstock._check_stored(one, q.max_payload_bytes)
    from unnest(array[batch_open.end_message, batch_open.abort_message]) as one where one is not null;
    b := penstock._joined(
        q, penstock._check_name('batch', batch_open.name),
        coalesce(batch_open.after, penstock.batch_mark(q.name, batch_open.name, true)), penstock.now_us()
    );
    if batch_open.end_message is not null or batch_open.abort_message is not null then
        update penstock.batch as u
        set end_message = coalesce(batch_open.end_message, u.end_message),
            abort_message = coalesce(batch_open.abort_message, u.abort_message)
        where u.batch_id = b.batch_id;
    end if;
    select * into batch, state, total, remaining from penstock._batch_info(b);
end
$$;

drop function if exists penstock.batch_start(text, text);
-- held -> ready for its members; an empty batch ends at once. Starting again changes nothing.
create or replace function penstock.batch_start(
    queue text, name text, after bigint default null, out batch text, out state text, out total bigint, out remaining bigint
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', batch_start.queue));
    _now bigint := penstock.now_us();
    b penstock.batch := penstock._ensured_batch(q, penstock._check_name('batch', batch_start.name), after, _now);
    h penstock.held;
begin
    select * into b from penstock.batch as u where u.batch_id = b.batch_id for update;
    if b.state = 'open' then
        update penstock.batch as u set state = 'running' where u.batch_id = b.batch_id;
        update penstock.held as u set waiting = false where u.batch_id = b.batch_id;
        for h in
            with gone as (
                delete from penstock.held as u where u.batch_id = b.batch_id and u.available_at <= _now returning u.*
            )
            select * from gone order by held_id
        loop
            -- Members are available when the batch starts, which is after they were sent.
            h.available_at := greatest(_now, h.created_at + 1);
            perform penstock._release(q, h, 'batch_start', _now);
        end loop;
        perform penstock._end_batch_if_done(b.batch_id, _now);
        perform penstock._wake(q.queue_id);
        select * into b from penstock.batch as u where u.batch_id = b.batch_id;
    end if;
    select * into batch, state, total, remaining from penstock._batch_info(b);
end
$$;

drop function if exists penstock.batch_cancel(text, text);
-- held, ready -> cancelled for its members; the abort message follows when those in flight have ended.
create or replace function penstock.batch_cancel(
    queue text, name text, after bigint default null, out batch text, out state text, out total bigint, out remaining bigint
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(batch_cancel.queue);
    _now bigint := penstock.now_us();
    b penstock.batch := penstock._get_batch(q, batch_cancel.name, after);
begin
    select * into b from penstock.batch as u where u.batch_id = b.batch_id for update;
    if b.state in ('open', 'running') then
        update penstock.batch as u set state = 'cancelling' where u.batch_id = b.batch_id;
        perform penstock._cancel_members(q, b, format('batch %s was cancelled', b.name), _now);
        perform penstock._end_batch_if_done(b.batch_id, _now);
        select * into b from penstock.batch as u where u.batch_id = b.batch_id;
    end if;
    select * into batch, state, total, remaining from penstock._batch_info(b);
end
$$;

drop function if exists penstock._get_batch(penstock.queue, text);
create or replace function penstock._get_batch(q penstock.queue, _name text, _after bigint) returns penstock.batch
language plpgsql stable as $$
declare
    b penstock.batch := penstock._meant_batch(q, _name, _after);
begin
    if b.batch_id is null then
        raise exception using errcode = 'PN300', detail = 'batch',
            message = format('queue %s has no batch %s', penstock._shown(q.name), penstock._shown(_name));
    end if;
    return b;
end
$$;

-- Cancel what no group has handed out. Another group than the primary keeps what it has begun to handle: a batch is not
-- its own. The lanes are locked first: nobody hands out a member meanwhile.
create or replace function penstock._cancel_members(
    q penstock.queue, b penstock.batch, _reason text, _now bigint
) returns void
language plpgsql as $$
declare
    h penstock.held;
    g penstock.reader;
    t penstock.tracked;
    m penstock.log;
    _members bigint[];
    _is_primary boolean;
begin
    perform penstock._lock_lanes(q, null);
    -- One at a time: the batch ends, and sends its abort message, when no member is held any more.
    for h in select * from penstock.held where batch_id = b.batch_id order by held_id for update loop
        delete from penstock.held where held_id = h.held_id;
        perform penstock._withdraw(q, h, 'batch_cancel', 'cancelled', _reason, _now);
    end loop;
    _members := array(select seq from penstock.member where batch_id = b.batch_id order by seq);
    for g in select * from penstock.reader where queue_id = q.queue_id and stream_mark is null order by name loop
        _is_primary := g.name is not distinct from q.primary_group;
        for m in
            select u.* from penstock.log as u join penstock.lane as n using (lane_id)
            where u.seq = any (_members) and n.queue_id = q.queue_id and n.priority >= 0
                and not penstock._is_read(
                    penstock._cursor(g.group_id, u.lane_id), u.tx, u.seq, q.trimmed_position
                )
                and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = u.seq)
            order by u.seq
        loop
            insert into penstock.skip (group_id, seq) values (g.group_id, m.seq);
            perform penstock._end(
                q, g, penstock._as_flight(m, (select priority from penstock.lane where lane_id = m.lane_id), null, null),
                'batch_cancel', 'cancelled', null, _reason, 0, null, _is_primary, _now
            );
        end loop;
        continue when not _is_primary;
        for t in
            delete from penstock.tracked
            where group_id = g.group_id and seq = any (_members) and state in ('held', 'ready')
            returning *
        loop
            perform penstock._end(
                q, g, penstock._tracked_flight(t), 'batch_cancel', 'cancelled', null, _reason, t.attempt, null, true, _now
            );
        end loop;
    end loop;
end
$$;
