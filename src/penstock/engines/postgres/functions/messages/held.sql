-- held -> ready, when the time has come or the batch has started; held -> an outcome.

-- Append held messages that are due to the log, where no cursor can have passed. Returns their positions.
create or replace function penstock._promote_held(q penstock.queue, _limit integer, _now bigint) returns bigint[]
language plpgsql as $$
declare
    h penstock.held;
    _positions bigint[] := '{}';
begin
    for h in
        with gone as (
            delete from penstock.held where held_id in (
                select held_id from penstock.held
                where queue_id = q.queue_id and not waiting and available_at <= _now
                order by available_at, held_id
                limit _limit
                for update skip locked
            )
            returning *
        )
        select * from gone order by available_at, held_id
    loop
        _positions := _positions || penstock._release_held(q, h, 'due', _now);
    end loop;
    return _positions;
end
$$;

-- held -> ready. Returns the position.
create or replace function penstock._release_held(q penstock.queue, h penstock.held, _event text, _now bigint) returns bigint
language plpgsql as $$
declare
    msg penstock.message_row := penstock._append_held(q, h, h.priority);
begin
    perform penstock._record_audit(q.queue_id, null, _event, 'ready', msg.position, 'system', null, 0, null, _now);
    return msg.position;
end
$$;

-- held -> an outcome in every group. The message is appended to a lane that nobody reads, so that its audit trail has a
-- position.
create or replace function penstock._end_held(
    q penstock.queue, h penstock.held, _event text, _state text, _reason text, _now bigint
) returns void
language plpgsql as $$
declare
    msg penstock.message_row := penstock._append_held(q, h, -1 - h.priority);
    _why text := coalesce(_reason, penstock._default_reason(_event));
    g penstock.group;
begin
    msg.priority := h.priority;
    perform penstock._record_audit(q.queue_id, null, _event, _state, msg.position, 'system', _why, 0, null, _now);
    for g in select * from penstock.group where queue_id = q.queue_id and stream_mark is null order by name loop
        perform penstock._store_outcome(
            q, g, msg, _state, _why, 0, g.name is not distinct from q.primary_group, _now
        );
    end loop;
end
$$;

-- Append a held message to the log.
create or replace function penstock._append_held(q penstock.queue, h penstock.held, _priority integer) returns penstock.message_row
language plpgsql as $$
declare
    _tx xid8 := pg_current_xact_id();
    msg penstock.message_row;
begin
    perform penstock._begin_sending(q.queue_id);
    msg.position := nextval('penstock.position');
    msg.lane_id := penstock._ensure_lane(q.queue_id, _priority, h.shard);
    msg.priority := _priority;
    msg.attempt := 0;
    msg.created_at := h.created_at;
    msg.id := h.id;
    msg.content_type := h.content_type;
    msg.headers := h.headers;
    msg.expires_at := h.expires_at;
    msg.deadline_at := h.deadline_at;
    msg.address := h.address;
    msg.key := h.key;
    msg.batch_id := h.batch_id;
    msg.created_by := h.created_by;
    msg.available_at := h.available_at;
    msg.payload := h.payload;
    perform penstock._append_message(msg, _tx);
    update penstock.identity set position = msg.position, held_id = null where queue_id = q.queue_id and id = h.id;
    if h.address is not null then
        update penstock.address set position = msg.position where queue_id = q.queue_id and address = h.address and id = h.id;
    end if;
    if h.batch_id is not null then
        insert into penstock.batch_member (position, batch_id) values (msg.position, h.batch_id);
    end if;
    return msg;
end
$$;
