-- What time does to messages: held -> ready, leased -> ready or an outcome, live -> expired.

-- Held messages whose time has come are appended to the log: no group's cursor can have passed their place before. Gives
-- back their positions.
create or replace function penstock._promote(q penstock.queue, _limit integer, _now bigint) returns bigint[]
language plpgsql as $$
declare
    h penstock.held;
    _seqs bigint[] := '{}';
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
        _seqs := _seqs || penstock._release(q, h, 'due', _now);
    end loop;
    return _seqs;
end
$$;

-- A message that was held is ready; gives back its position.
create or replace function penstock._release(q penstock.queue, h penstock.held, _event text, _now bigint) returns bigint
language plpgsql as $$
declare
    fl penstock.flight := penstock._arrive(q, h, h.priority);
begin
    perform penstock._record(q.queue_id, null, _event, 'ready', fl.seq, 'system', null, 0, null, _now);
    return fl.seq;
end
$$;

-- held -> an outcome, in every group: the message goes where nobody reads, so that its trail can be read.
create or replace function penstock._withdraw(
    q penstock.queue, h penstock.held, _event text, _state text, _reason text, _now bigint
) returns void
language plpgsql as $$
declare
    fl penstock.flight := penstock._arrive(q, h, -1 - h.priority);
    _why text := coalesce(_reason, penstock._reason(_event));
    g penstock.reader;
begin
    fl.priority := h.priority;
    perform penstock._record(q.queue_id, null, _event, _state, fl.seq, 'system', _why, 0, null, _now);
    for g in select * from penstock.reader where queue_id = q.queue_id and stream_mark is null order by name loop
        perform penstock._account(
            q, g, fl, _state, _why, 0, g.name is not distinct from q.primary_group, _now
        );
    end loop;
end
$$;

-- A message that was held has a place in the log.
create or replace function penstock._arrive(q penstock.queue, h penstock.held, _priority integer) returns penstock.flight
language plpgsql as $$
declare
    _tx xid8 := pg_current_xact_id();
    fl penstock.flight;
begin
    perform penstock._begin_sending(q.queue_id);
    fl.seq := nextval('penstock.position');
    fl.lane_id := penstock._lane(q.queue_id, _priority, h.shard);
    fl.priority := _priority;
    fl.attempt := 0;
    fl.created_at := h.created_at;
    fl.id := h.id;
    fl.content_type := h.content_type;
    fl.headers := h.headers;
    fl.expires_at := h.expires_at;
    fl.deadline_at := h.deadline_at;
    fl.address := h.address;
    fl.key := h.key;
    fl.batch_id := h.batch_id;
    fl.created_by := h.created_by;
    fl.available_at := h.available_at;
    fl.payload := h.payload;
    perform penstock._write(fl, _tx);
    update penstock.identity set seq = fl.seq, held_id = null where queue_id = q.queue_id and id = h.id;
    if h.address is not null then
        update penstock.address set seq = fl.seq where queue_id = q.queue_id and address = h.address and id = h.id;
    end if;
    if h.batch_id is not null then
        insert into penstock.member (seq, batch_id) values (fl.seq, h.batch_id);
    end if;
    return fl;
end
$$;

-- Retries of the group that are due.
create or replace function penstock._make_ready(
    q penstock.queue, g penstock.reader, _limit integer, _now bigint
) returns integer
language plpgsql as $$
declare
    t record;
    _count integer := 0;
begin
    for t in
        update penstock.tracked set state = 'ready'
        where group_id = g.group_id and seq in (
            select seq from penstock.tracked
            where group_id = g.group_id and state = 'held' and until_at <= _now
            order by until_at, seq
            limit _limit
            for update skip locked
        )
        returning seq, attempt
    loop
        _count := _count + 1;
        perform penstock._record(
            q.queue_id, g.group_id, 'due', 'ready', t.seq, 'system', null, t.attempt, null, _now
        );
    end loop;
    return _count;
end
$$;

-- Retries of the group that are over before they were handed out again.
create or replace function penstock._expire_tracked(q penstock.queue, g penstock.reader, _now bigint) returns integer
language plpgsql as $$
declare
    t penstock.tracked;
    _count integer := 0;
begin
    for t in
        delete from penstock.tracked where (group_id, seq) in (
            select group_id, seq from penstock.tracked
            where group_id = g.group_id and state <> 'leased'
                and (expires_at <= _now or (q.delivery = 'at_most_once' and deadline_at <= _now))
            order by seq
            for update skip locked
        )
        returning *
    loop
        _count := _count + 1;
        perform penstock._end(
            q, g, penstock._tracked_flight(t), case when t.expires_at <= _now then 'expire' else 'deadline' end,
            'expired', 'system', null, t.attempt, null, true, _now
        );
    end loop;
    return _count;
end
$$;

-- Retries that are due and leases that have lapsed, at least _least if there are so many and at most _limit; whether there
-- may be retries that are ready.
drop function if exists penstock._look_after(penstock.queue, penstock.reader, integer, boolean, bigint);
create or replace function penstock._look_after(
    q penstock.queue, g penstock.reader, _least integer, _limit integer, _lapsed boolean, _now bigint
) returns boolean
language plpgsql as $$
declare
    due record;
begin
    select
        exists (
            select 1 from penstock.tracked where group_id = g.group_id and state = 'held' and until_at <= _now
        ) as retries,
        _lapsed or exists (
            select 1 from penstock.tracked where group_id = g.group_id and state = 'leased' and until_at <= _now
        ) as lapsed,
        exists (select 1 from penstock.tracked where group_id = g.group_id and state = 'ready') as ready
    into due;
    if due.retries then
        perform penstock._make_ready(q, g, _limit, _now);
    end if;
    if due.lapsed then
        perform penstock._reclaim(q, g, null, _now, _least, _limit);
    end if;
    if due.retries or due.lapsed or due.ready then
        perform penstock._expire_tracked(q, g, _now);
        return true;
    end if;
    return false;
end
$$;
