-- Batches: messages held until started, with an end message when all are finished.

-- The newest batch of a name, or the first one after a number.
create or replace function penstock._find_batch(q penstock.queue, _name text, _after bigint) returns penstock.batch
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

-- The number before the batch of a name that a caller means now: before the newest. A caller that opens a batch means
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

-- The queues in which a batch has members, its own included, in locking order.
create or replace function penstock._batch_queues(b penstock.batch) returns setof penstock.queue
language sql stable as $$
    select q.* from penstock.queue as q
    where q.queue_id = b.queue_id
        or q.queue_id in (select o.queue_id from penstock.batch_queue as o where o.batch_id = b.batch_id)
    order by q.queue_id
$$;

-- The batch of a name in whatever state, created when there is none. Serialised, so that two senders do not create two.
create or replace function penstock._ensure_batch(q penstock.queue, _name text, _after bigint, _now bigint)
returns penstock.batch
language plpgsql as $$
declare
    b penstock.batch := penstock._find_batch(q, _name, _after);
begin
    if q.primary_group is null then
        raise exception using errcode = 'PN100', message = format(
            'queue %s has no primary group: batch %s could not end', penstock._quote_value(q.name), penstock._quote_value(_name)
        );
    end if;
    if b.batch_id is null then
        perform pg_advisory_xact_lock(hashtextextended(format('penstock batch %s %s', q.queue_id, _name), 0));
        b := penstock._find_batch(q, _name, _after);
        if b.batch_id is null then
            insert into penstock.batch (queue_id, name, created_at) values (q.queue_id, _name, _now) returning * into b;
        end if;
    end if;
    return b;
end
$$;

-- The end or abort message of a batch, with the name of the batch in a header.
create or replace function penstock._add_batch_header(_batch text, _message jsonb) returns jsonb
language sql immutable as $$
    select _message || jsonb_build_object('options', options || jsonb_build_object('headers', (
        coalesce(options ->> 'headers', '{}')::jsonb || jsonb_build_object('penstock-batch', _batch)
    )::text))
    from (select coalesce(nullif(_message -> 'options', 'null'), '{}') as options) as given
$$;

-- The lock of the transaction that decides whether a batch has ended.
create or replace function penstock._batch_key(_batch_id bigint) returns bigint
language sql immutable as $$
    select hashint8extended(_batch_id, 7305793389475492358)
$$;

-- Send a message that was stored as JSON: {payload (base64), content_type, options}.
create or replace function penstock._send_stored(q penstock.queue, _message jsonb) returns void
language plpgsql as $$
declare
    _tx xid8 := pg_current_xact_id();
begin
    perform penstock._send_rows(
        q, array[decode(_message ->> 'payload', 'base64')], array[_message ->> 'content_type'],
        jsonb_build_array(_message -> 'options'), _tx
    );
    perform penstock._wake_receivers(q.queue_id);
end
$$;

-- Refuse an end or abort message that could not be sent later: the last member of the batch could not be settled then.
create or replace function penstock._check_stored_message(_message jsonb, _most integer) returns void
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
            penstock._quote_value(_message::text)
        ), hint = 'batch_set_end and batch_set_abort take any JSON value.';
    end if;
    perform penstock._check_messages(
        array[_payload], array[_message ->> 'content_type'], jsonb_build_array(_message -> 'options')
    );
    perform penstock._check_size(octet_length(_payload), _most);
end
$$;

-- The state and the counts of a batch.
create or replace function penstock._batch_info(
    b penstock.batch, out name text, out state text, out total bigint, out remaining bigint, out cancelled bigint
)
language sql stable as $$
    select b.name, b.state, joined.n,
        (select count(*) from penstock.batch_member as m where m.batch_id = b.batch_id)
            + (select count(*) from penstock.held as h where h.batch_id = b.batch_id),
        joined.cancelled
    from (
        select coalesce(sum(j.n), 0) as n, coalesce(sum(j.cancelled), 0) as cancelled
        from penstock.batch_join as j where j.batch_id = b.batch_id
    ) as joined
$$;

-- Create the batch unless it is open or running, and set its end or abort message when given. With a number the first
-- batch of the name after it is meant, which is not created again when it has ended.
create or replace function penstock.batch_open(
    queue text, name text, end_message jsonb default null, abort_message jsonb default null, after bigint default null,
    out batch text, out state text, out total bigint, out remaining bigint, out cancelled bigint
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
            'the end or abort message of batch %s cannot have an address', penstock._quote_value(batch_open.name)
        );
    end if;
    perform penstock._check_stored_message(one, q.max_payload_bytes)
    from unnest(array[batch_open.end_message, batch_open.abort_message]) as one where one is not null;
    b := penstock._join_batch(
        q, penstock._check_name('batch', batch_open.name),
        coalesce(batch_open.after, penstock.batch_mark(q.name, batch_open.name, true)), penstock.now_us()
    );
    if batch_open.end_message is not null or batch_open.abort_message is not null then
        update penstock.batch as u
        set end_message = coalesce(batch_open.end_message, u.end_message),
            abort_message = coalesce(batch_open.abort_message, u.abort_message)
        where u.batch_id = b.batch_id;
    end if;
    select * into batch, state, total, remaining, cancelled from penstock._batch_info(b);
end
$$;

-- held -> ready for its members; an empty batch ends at once. Starting again changes nothing.
create or replace function penstock.batch_start(
    queue text, name text, after bigint default null, out batch text, out state text, out total bigint,
    out remaining bigint, out cancelled bigint
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', batch_start.queue));
    _now bigint := penstock.now_us();
    b penstock.batch := penstock._ensure_batch(q, penstock._check_name('batch', batch_start.name), after, _now);
    m penstock.queue;
    h penstock.held;
begin
    select * into b from penstock.batch as u where u.batch_id = b.batch_id for update;
    if b.state = 'open' then
        update penstock.batch as u set state = 'running' where u.batch_id = b.batch_id;
        update penstock.held as u set waiting = false where u.batch_id = b.batch_id;
        for m in select * from penstock._batch_queues(b) loop
            for h in
                with gone as (
                    delete from penstock.held as u
                    where u.batch_id = b.batch_id and u.queue_id = m.queue_id and u.available_at <= _now
                    returning u.*
                )
                select * from gone order by held_id
            loop
                -- Members are available when the batch starts, which is after they were sent.
                h.available_at := greatest(_now, h.created_at + 1);
                perform penstock._release_held(m, h, 'batch_start', _now);
            end loop;
            perform penstock._wake_receivers(m.queue_id);
        end loop;
        perform penstock._end_batch_if_done(b.batch_id, _now);
        select * into b from penstock.batch as u where u.batch_id = b.batch_id;
    end if;
    select * into batch, state, total, remaining, cancelled from penstock._batch_info(b);
end
$$;

-- held, ready -> cancelled for its members; the abort message follows when those in flight have ended.
create or replace function penstock.batch_cancel(
    queue text, name text, after bigint default null, out batch text, out state text, out total bigint,
    out remaining bigint, out cancelled bigint
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
        perform penstock._cancel_members(m, b, format('batch %s was cancelled', b.name), _now)
        from penstock._batch_queues(b) as m;
        perform penstock._end_batch_if_done(b.batch_id, _now);
        select * into b from penstock.batch as u where u.batch_id = b.batch_id;
    end if;
    select * into batch, state, total, remaining, cancelled from penstock._batch_info(b);
end
$$;

create or replace function penstock._get_batch(q penstock.queue, _name text, _after bigint) returns penstock.batch
language plpgsql stable as $$
declare
    b penstock.batch := penstock._find_batch(q, _name, _after);
begin
    if b.batch_id is null then
        raise exception using errcode = 'PN300', detail = 'batch',
            message = format('queue %s has no batch %s', penstock._quote_value(q.name), penstock._quote_value(_name));
    end if;
    return b;
end
$$;
