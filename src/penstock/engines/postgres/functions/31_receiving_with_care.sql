-- ready -> leased, one by one: what may be over, retries, what is taken out of its turn, and ordered queues.

drop function if exists penstock._take_waiting(
    penstock.queue, penstock.reader, text, integer, double precision, bigint, bigint, integer, bigint[]
);
drop function if exists penstock._take_promoted(
    penstock.queue, penstock.reader, text, integer, double precision, bigint, bigint, integer, bigint[]
);
drop function if exists penstock._take_in_order(
    penstock.queue, penstock.reader, text, integer, double precision, bigint, bigint, bigint[]
);

-- Unread messages one by one: what is over is passed and written down as ended, and leases may end at different times.
create or replace function penstock._take_carefully(
    q penstock.queue, g penstock.reader, _lane_id integer, _priority integer, c penstock.claim, _consumer text,
    _room integer, _lease_seconds double precision, _token bigint, _now bigint
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    m penstock.log;
    fl penstock.flight;
    _ends_at bigint := _now + penstock._us(_lease_seconds);
    _ends bigint;
    _seqs bigint[] := '{}';
    _count integer := 0;
    _passed integer := 0;
    _over text;
begin
    c.used_up := true;
    for m in select * from penstock._window(_lane_id, c, q.trimmed_position) loop
        if _count = _room then
            c.used_up := false;
            exit;
        end if;
        _passed := _passed + 1;
        c.at_tx := m.tx;
        c.at_seq := m.seq;
        delete from penstock.skip where group_id = g.group_id and seq = m.seq;
        continue when found;
        fl := penstock._as_flight(m, _priority, _token, _consumer);
        _over := penstock._end_event(q, m.expires_at, m.deadline_at, m.batch_id, _now);
        if _over is not null then
            perform penstock._end(
                q, g, fl, _over, case _over when 'batch_cancel' then 'cancelled' else 'expired' end, 'system', null, 0,
                null, g.name is not distinct from q.primary_group, _now
            );
            continue;
        end if;
        _count := _count + 1;
        _ends := penstock._lease_end(_now, _lease_seconds, m.expires_at, m.deadline_at);
        if _ends = _ends_at then
            _seqs := _seqs || m.seq;
        else
            perform penstock._track(g.group_id, fl, 'leased', 1, _ends, _now);
            perform penstock._record(
                q.queue_id, g.group_id, 'receive', 'leased', m.seq, _consumer, null, 1, _token, penstock.now_us()
            );
        end if;
        return next row (
            m.seq, m.created_at, m.id::text, m.content_type, m.headers, m.expires_at, m.deadline_at, m.address, m.key,
            (select b.name from penstock.batch as b where b.batch_id = m.batch_id), m.created_by, m.payload, _priority,
            1, _ends
        )::penstock.delivery_row;
    end loop;
    if _passed > 0 then
        perform penstock._claim(q, g, _lane_id, c, _passed, _seqs, _consumer, _token, _ends_at, _now);
    end if;
end
$$;

-- What no cursor comes to and goes before unread messages of a priority: retries up to it, and what this transaction itself
-- has sent or promoted to a better one. Of each priority the retries come first.
create or replace function penstock._take_waiting(
    q penstock.queue, g penstock.reader, _consumer text, _room integer, _lease_seconds double precision, _token bigint,
    _now bigint, _priority integer, _own xid8
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    _better integer;
    _taken integer;
begin
    for _better in
        select distinct n.priority from penstock.lane as n
        where n.queue_id = q.queue_id and n.priority >= 0 and n.priority < _priority
            and exists (select 1 from penstock.log as l where l.lane_id = n.lane_id and l.tx = _own)
        order by n.priority
    loop
        return query
        select * from penstock._take_retries(q, g, _consumer, _room, _lease_seconds, _token, _now, _better);
        get diagnostics _taken = row_count;
        _room := _room - _taken;
        return query
        select * from penstock._take_own(q, g, _consumer, _room, _lease_seconds, _token, _now, _better, _own);
        get diagnostics _taken = row_count;
        _room := _room - _taken;
    end loop;
    return query
    select * from penstock._take_retries(q, g, _consumer, _room, _lease_seconds, _token, _now, _priority);
end
$$;

-- Retries that are ready, up to a priority. Those that another receive is taking are passed by, and so are those that a
-- receive which began later has had and given back meanwhile: the tokens of a message grow.
create or replace function penstock._take_retries(
    q penstock.queue, g penstock.reader, _consumer text, _room integer, _lease_seconds double precision, _token bigint,
    _now bigint, _priority integer
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    t penstock.tracked;
begin
    for t in
        select * from penstock.tracked
        where group_id = g.group_id and state = 'ready' and priority <= _priority and coalesce(token, 0) < _token
        order by priority, seq
        limit _room
        for update skip locked
    loop
        return next penstock._take_retry(q, t, _consumer, _lease_seconds, _token, _now);
    end loop;
end
$$;

create or replace function penstock._take_retry(
    q penstock.queue, t penstock.tracked, _consumer text, _lease_seconds double precision, _token bigint, _now bigint
) returns penstock.delivery_row
language plpgsql as $$
declare
    _ends bigint := penstock._lease_end(_now, _lease_seconds, t.expires_at, t.deadline_at);
begin
    update penstock.tracked
    set state = 'leased', attempt = t.attempt + 1, until_at = _ends, token = _token, consumer = _consumer,
        leased_at = _now
    where group_id = t.group_id and seq = t.seq;
    perform penstock._record(
        q.queue_id, t.group_id, 'receive', 'leased', t.seq, _consumer, null, t.attempt + 1, _token, penstock.now_us()
    );
    return row (
        t.seq, t.created_at, t.id::text, t.content_type, t.headers, t.expires_at, t.deadline_at, t.address, t.key,
        penstock._batch_name(t), t.created_by, t.payload, t.priority, t.attempt + 1, _ends
    )::penstock.delivery_row;
end
$$;

-- The batch that a message was sent to. One that was redriven is no member any more, but was sent to it all the same.
create or replace function penstock._batch_name(t penstock.tracked) returns text
language sql stable as $$
    select b.name from penstock.batch as b
    where b.batch_id = case
        when t.batch_id is not null then t.batch_id
        when exists (select 1 from penstock.careful as r where r.lane_id = t.lane_id) then (
            select m.batch_id from penstock.log as m where m.seq = t.seq and m.lane_id = t.lane_id
        )
    end
$$;

-- Messages that this very transaction has sent or promoted, up to a priority. No snapshot shows them yet, so no cursor comes
-- to them now: they are leased one by one, and the cursor passes over them later.
create or replace function penstock._take_own(
    q penstock.queue, g penstock.reader, _consumer text, _room integer, _lease_seconds double precision, _token bigint,
    _now bigint, _priority integer, _own xid8, _only bigint default null
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    one record;
begin
    for one in
        select l.seq, n.lane_id, n.priority from penstock.lane as n join penstock.log as l using (lane_id)
        where n.queue_id = q.queue_id and n.priority >= 0 and n.priority <= _priority and l.tx = _own
            and l.seq > q.trimmed_position and (_only is null or l.seq = _only)
            and penstock._end_event(q, l.expires_at, l.deadline_at, l.batch_id, _now) is null
            and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = l.seq)
        order by n.priority, l.seq
        limit _room
    loop
        return next penstock._lease_ahead(
            q, g, one.lane_id, one.priority, one.seq, _consumer, _lease_seconds, _token, _now
        );
    end loop;
end
$$;

-- Lease one message that the cursor has not come to: it is looked after by itself from now on, and the cursor passes over.
create or replace function penstock._lease_ahead(
    q penstock.queue, g penstock.reader, _lane_id integer, _priority integer, _seq bigint, _consumer text,
    _lease_seconds double precision, _token bigint, _now bigint
) returns penstock.delivery_row
language plpgsql as $$
declare
    m penstock.log;
    _ends bigint;
begin
    select * into m from penstock.log where seq = _seq and lane_id = _lane_id;
    _ends := penstock._lease_end(_now, _lease_seconds, m.expires_at, m.deadline_at);
    insert into penstock.skip (group_id, seq) values (g.group_id, _seq);
    perform penstock._track(
        g.group_id, penstock._as_flight(m, _priority, _token, _consumer), 'leased', 1, _ends, _now
    );
    perform penstock._record(
        q.queue_id, g.group_id, 'receive', 'leased', _seq, _consumer, null, 1, _token, penstock.now_us()
    );
    return row (
        m.seq, m.created_at, m.id::text, m.content_type, m.headers, m.expires_at, m.deadline_at, m.address, m.key,
        (select b.name from penstock.batch as b where b.batch_id = m.batch_id), m.created_by, m.payload, _priority, 1,
        _ends
    )::penstock.delivery_row;
end
$$;

-- The event that has ended an unread message, though nobody has written it down yet; null while it is not over. A batch that
-- was cancelled is over in every group, also in one that came later.
create or replace function penstock._end_event(
    q penstock.queue, _expires_at bigint, _deadline_at bigint, _batch_id bigint, _now bigint
) returns text
language sql stable as $$
    select case
        when _expires_at <= _now then 'expire'
        when q.delivery = 'at_most_once' and _deadline_at <= _now then 'deadline'
        when _batch_id is not null and (
            select b.state in ('cancelling', 'cancelled') from penstock.batch as b where b.batch_id = _batch_id
        ) then 'batch_cancel'
    end
$$;

-- Unread messages of a lane one by one, out of their turn, because another transaction keeps the cursor: all but the others'
-- positions. At most 100: each has a lock.
create or replace function penstock._take_singly(
    q penstock.queue, g penstock.reader, _lane_id integer, _priority integer, _others int8multirange, _consumer text,
    _room integer, _lease_seconds double precision, _token bigint, _now bigint
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    c penstock.claim := penstock._cursor(g.group_id, _lane_id);
    m record;
    _most integer := least(_room, 100);
    _count integer := 0;
begin
    if c.number = 0 then
        c.above := q.trimmed_position;
    end if;
    for _pass in 1..2 loop
        if _pass = 2 then
            c.prev := c.snap;
            c.snap := penstock._snapshot();
            c.at_tx := '0';
            c.at_seq := 0;
            c.above := 0;
        end if;
        continue when c.used_up and _pass = 1;
        for m in
            select w.tx, w.seq from penstock._window(_lane_id, c, q.trimmed_position) as w
            where not _others @> (w.seq & 17592186044415)
                and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = w.seq)
                and penstock._end_event(q, w.expires_at, w.deadline_at, w.batch_id, _now) is null
        loop
            continue when not pg_try_advisory_xact_lock(penstock._message_key(g.group_id, m.seq));
            -- Looked at again, now that nobody else can take it: somebody may have, and committed.
            continue when exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = m.seq)
                or penstock._is_read(penstock._cursor(g.group_id, _lane_id), m.tx, m.seq, q.trimmed_position);
            return next penstock._lease_ahead(
                q, g, _lane_id, _priority, m.seq, _consumer, _lease_seconds, _token, _now
            );
            _count := _count + 1;
            exit when _count = _most;
        end loop;
        exit when _count = _most;
    end loop;
end
$$;

-- The same, and when there is nothing but what another transaction has taken, it is waited for, for a moment.
create or replace function penstock._take_single(
    _queue_id integer, _group_id integer, _lane_id integer, _priority integer, _others int8multirange, _consumer text,
    _room integer, _lease_seconds double precision, _token bigint, _now bigint, _waits boolean
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    q penstock.queue;
    g penstock.reader;
begin
    select * into q from penstock.queue where queue_id = _queue_id;
    select * into g from penstock.reader where group_id = _group_id;
    return query select * from penstock._take_singly(
        q, g, _lane_id, _priority, _others, _consumer, _room, _lease_seconds, _token, _now
    );
    if not found and _waits and _others <> '{}'
        and penstock._line_up(penstock._lane_key(_group_id, _lane_id), '100ms') then
        -- It holds the lane now, and does not move the cursor either.
        perform penstock._publish(_group_id, _lane_id);
        return query select * from penstock._take_singly(
            q, g, _lane_id, _priority, '{}', _consumer, _room, _lease_seconds, _token, penstock.now_us()
        );
    end if;
end
$$;

-- The position of the next message of a lane that a group has not read and that has not ended in it.
create or replace function penstock._next_unread(q penstock.queue, g penstock.reader, _lane_id integer) returns bigint
language sql stable as $$
    select m.seq
    from penstock._unread(
        _lane_id, penstock._cursor(g.group_id, _lane_id), q.trimmed_position, 100
    ) as m
    where not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = m.seq)
    limit 1
$$;

-- An ordered queue has one open lease per shard. A retry goes before what follows it, and while it waits its shard waits
-- too. What is handed out behind a failure is released, which an at_most_once message must not be: one at a time. A shard
-- that another transaction reads is passed by; if that was all, the first of them is waited for, for a moment.
create or replace function penstock._take_in_order(
    q penstock.queue, g penstock.reader, _consumer text, _limit integer, _lease_seconds double precision, _token bigint,
    _now bigint, _own xid8, _waits boolean default true
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    _most integer := case when q.delivery = 'at_most_once' then 1 else _limit end;
    _room integer := _limit;
    _taken integer;
    _blocked integer[] := '{}';
    _entered integer[] := '{}';
    _missed integer;
    _waits_at bigint;
    turn record;
    waiting penstock.tracked;
    r penstock.delivery_row;
begin
    -- Of each priority the retries, the lanes with unread messages, and what this transaction has sent or promoted: the
    -- last of its shard. It is looked at again when the shard is locked.
    for turn in
        select turns.* from (
            select t.priority, 'retry' as kind, 0 as rank, t.seq as place, n.shard, t.seq, n.lane_id, n.trimmed
            from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = g.group_id and t.state in ('held', 'ready')
            union all
            select n.priority, 'lane', 1, penstock._turn(g.group_id, _consumer, n.shard, q.shards), n.shard, null,
                n.lane_id, n.trimmed
            from penstock.lane as n
            where n.queue_id = q.queue_id and n.priority >= 0
                and penstock._has_unread(g.group_id, n.lane_id, q.trimmed_position)
            union all
            select n.priority, 'own', 2, l.seq, n.shard, l.seq, n.lane_id, n.trimmed
            from penstock.lane as n join penstock.log as l using (lane_id)
            where n.queue_id = q.queue_id and n.priority >= 0 and l.tx = _own
        ) as turns
        order by turns.priority, turns.rank, turns.place
    loop
        exit when _room = 0;
        continue when turn.shard = any (_blocked);
        if turn.shard <> all (_entered) then
            if not pg_try_advisory_xact_lock(penstock._shard_key(g.group_id, turn.shard)) then
                _missed := coalesce(_missed, turn.shard);
                _blocked := _blocked || turn.shard;
                continue;
            end if;
            _entered := _entered || turn.shard;
            if turn.shard in (select penstock._busy_shards(g.group_id)) then
                _blocked := _blocked || turn.shard;
                continue;
            end if;
        end if;
        if turn.kind = 'retry' then
            -- The first message in care of each shard: if it is ready it is the shard's turn, if not the shard waits.
            select t.* into waiting from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = g.group_id and t.state in ('held', 'ready') and n.shard = turn.shard
            order by t.seq limit 1;
            continue when (waiting.seq = turn.seq and waiting.state = 'ready') is not true;
            return next penstock._take_retry(q, waiting, _consumer, _lease_seconds, _token, _now);
            _taken := 1;
        elsif turn.kind = 'own' then
            continue when exists (
                select 1 from penstock.tracked as t join penstock.lane as n using (lane_id)
                where t.group_id = g.group_id and t.state in ('held', 'ready') and n.shard = turn.shard
            );
            return query select * from penstock._take_own(
                q, g, _consumer, 1, _lease_seconds, _token, _now, turn.priority, _own, turn.seq
            );
            get diagnostics _taken = row_count;
        else
            select min(t.seq) into _waits_at
            from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = g.group_id and t.state in ('held', 'ready') and n.shard = turn.shard;
            -- A message redriven before it was ever read waits further on: what comes before it is free.
            continue when _waits_at <= coalesce(penstock._next_unread(q, g, turn.lane_id), _waits_at);
            _taken := 0;
            for r in
                select * from penstock._take_lane(
                    q, g, turn.lane_id, turn.priority, turn.trimmed, _consumer,
                    least(_room, case when _waits_at is null then _most else 1 end), _lease_seconds, _token, _now
                )
            loop
                return next r;
                _taken := _taken + 1;
            end loop;
            if _waits_at is not null then
                _blocked := _blocked || turn.shard;
            end if;
        end if;
        _room := _room - _taken;
        if _most = 1 and _taken > 0 then
            _blocked := _blocked || turn.shard;
        end if;
    end loop;
    if _room = _limit and _waits and _missed is not null
        and penstock._line_up(penstock._shard_key(g.group_id, _missed), '100ms') then
        return query select * from penstock._take_in_order(
            q, g, _consumer, _limit, _lease_seconds, _token, _now, _own, false
        );
    end if;
end
$$;

-- Shards of an ordered queue in which something is in flight.
create or replace function penstock._busy_shards(_group_id integer) returns setof integer
language sql stable as $$
    select n.shard from penstock.lease as e join penstock.lane as n using (lane_id) where e.group_id = _group_id
    union
    select n.shard from penstock.tracked as t join penstock.lane as n using (lane_id)
    where t.group_id = _group_id and t.state = 'leased'
$$;

-- Unread messages of a lane, window by window, with care.
create or replace function penstock._take_lane(
    q penstock.queue, g penstock.reader, _lane_id integer, _priority integer, _trimmed bigint, _consumer text,
    _limit integer, _lease_seconds double precision, _token bigint, _now bigint
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    c penstock.claim;
    _room integer := _limit;
    _taken integer;
    _is_fresh boolean := false;
begin
    -- The shard is locked, so only somebody who works on the whole queue can have the lane.
    if not pg_try_advisory_xact_lock(penstock._lane_key(g.group_id, _lane_id)) then
        return;
    end if;
    c := penstock._cursor(g.group_id, _lane_id);
    if c.number = 0 then
        c.passed := _trimmed;
        c.above := q.trimmed_position;
    end if;
    loop
        if not c.used_up then
            return query select * from penstock._take_carefully(
                q, g, _lane_id, _priority, c, _consumer, _room, _lease_seconds, _token, _now
            );
            get diagnostics _taken = row_count;
            _room := _room - _taken;
            exit when _room = 0;
            c := penstock._cursor(g.group_id, _lane_id, c);
        end if;
        exit when _is_fresh;
        c.prev := c.snap;
        c.snap := penstock._snapshot();
        exit when c.prev::text = c.snap::text;
        c.at_tx := '0';
        c.at_seq := 0;
        c.above := 0;
        c.used_up := false;
        _is_fresh := true;
    end loop;
end
$$;
