-- leased -> what the consumer says, and everything that follows from it.

-- A whole receive of first attempts at once, known by the number and the sum of its positions; false, with nothing done,
-- when it is not whole any more.
create or replace function penstock.ack_whole(
    _queue text, _group text, _token bigint, _count integer, _checksum bigint
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off
as $$
declare
    _tx xid8 := pg_current_xact_id();
    _now bigint := penstock.now_us();
    f record;
    e penstock.lease;
    _several integer;
begin
    -- The commonest case in one statement: as in penstock._succeed. A lease is found by its token and never by its end,
    -- here and elsewhere: an index by end is full of what is gone when somebody keeps a transaction open.
    with place as materialized (
        select u.queue_id, u.primary_group_id, u.ordered, r.group_id
        from penstock.queue as u join penstock.reader as r using (queue_id)
        where u.name = _queue and r.name = _group
    ),
    gone as (
        delete from penstock.lease as k
        where k.group_id = (select group_id from place)
            and k.token = _token and k.n = _count and k.checksum = _checksum and k.ends_at - _now > 0
            and (not (select ordered from place) or penstock._in_flight(k.group_id, _token) = _count)
        returning k.*
    ),
    written as (
        insert into penstock.step (
            entry, queue_id, group_id, tx, at, token, first, last, n, attempt, event, state, by, positions
        )
        select nextval('penstock.entry'), place.queue_id, gone.group_id, _tx, _now, token, first, last, n, 1,
            'ack', 'succeeded', consumer, case when last - first + 1 <> n then positions end
        from gone cross join place
    )
    select place.queue_id, positions, gone.group_id = primary_group_id and (
        exists (select 1 from penstock.member where seq between first and last)
        or exists (
            select 1 from penstock.address
            where queue_id = place.queue_id and seq between first and last and outcome is null
        )
    ) as frees
    into f
    from gone cross join place;
    if found then
        if f.frees then
            perform penstock._free(f.queue_id, f.positions, 'succeeded', null, _now);
        end if;
        return true;
    end if;
    select u.queue_id, u.primary_group_id, u.ordered, r.group_id into f
    from penstock.queue as u join penstock.reader as r using (queue_id)
    where u.name = _queue and r.name = _group;
    if not found or (f.ordered and penstock._in_flight(f.group_id, _token) <> _count) then
        return false;
    end if;
    -- From several lanes.
    perform 1 from penstock.lease where group_id = f.group_id and token = _token order by lane_id for update;
    select count(*) into _several from penstock.lease
    where group_id = f.group_id and token = _token
    having sum(n) = _count and sum(checksum) = _checksum and min(ends_at) > _now;
    if coalesce(_several, 0) < 2 then
        return false;
    end if;
    for e in delete from penstock.lease where group_id = f.group_id and token = _token returning * loop
        perform penstock._succeed(f.queue_id, f.group_id, f.primary_group_id, e, _now);
    end loop;
    return true;
end
$$;

-- How many messages of a receive are in flight.
create or replace function penstock._in_flight(_group_id integer, _token bigint) returns bigint
language sql stable as $$
    select coalesce((select sum(e.n) from penstock.lease as e where e.group_id = _group_id and e.token = _token), 0)
        + (select count(*) from penstock.tracked where group_id = _group_id and token = _token and state = 'leased')
$$;

-- Settle messages, each by its token: the state it led to, null when the lease was lost, or 'out_of_order' when an
-- ordered queue has something before it in flight. The same settle again answers as before.
create or replace function penstock.settle(
    _queue text, _group text, _events text[], _tokens bigint[], _positions bigint[], _reasons text[],
    _delays double precision[]
) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off
as $$
declare
    _now bigint := penstock.now_us();
    _tx xid8 := pg_current_xact_id();
    _n integer := cardinality(_events);
    _states text[] := array_fill(null::text, array[cardinality(_events)]);
    _done bigint[];
    _from integer := 1;
    _upto integer;
    q penstock.queue;
    g penstock.reader;
begin
    select * into q from penstock.queue where name = _queue;
    select * into g from penstock.reader where queue_id = q.queue_id and name = _group;
    if g.group_id is null then
        perform penstock._check_isolation('a settle that finds no lease');
        return _states;
    end if;
    if q.ordered and q.delivery <> 'at_most_once' then
        _states := penstock._settle_in_order(q, g, _events, _tokens, _positions, _reasons, _delays, _now);
        _from := _n + 1;
    end if;
    while _from <= _n loop
        -- A row of plain acks with one token is one step.
        _upto := _from;
        if _events[_from] = 'ack' and _reasons[_from] is null then
            while _upto < _n and _events[_upto + 1] = 'ack' and _reasons[_upto + 1] is null
                and _tokens[_upto + 1] = _tokens[_from] loop
                _upto := _upto + 1;
            end loop;
            _done := penstock._ack_some(q, g, _tokens[_from], _positions[_from:_upto], _now);
        else
            _done := '{}';
        end if;
        for place in _from.._upto loop
            if _positions[place] = any (_done) then
                _states[place] := 'succeeded';
            else
                _states[place] := penstock._settle_one(
                    q, g, _events[place], _tokens[place], _positions[place], _reasons[place], _delays[place], _now
                );
            end if;
        end loop;
        _from := _upto + 1;
    end loop;
    if array_position(_states, null) is not null then
        perform penstock._check_isolation('a settle that finds no lease');
    end if;
    return _states;
end
$$;

-- In an ordered queue nothing ends before what was handed out before it in the same lease and shard. The settlements of
-- one call need not be given in order: what others of them make way for is tried again.
create or replace function penstock._settle_in_order(
    q penstock.queue, g penstock.reader, _events text[], _tokens bigint[], _positions bigint[], _reasons text[],
    _delays double precision[], _now bigint
) returns text[]
language plpgsql as $$
declare
    _states text[] := array_fill(null::text, array[cardinality(_events)]);
    _left integer[] := array(
        select place::integer from unnest(_positions) with ordinality as one (seq, place) order by seq, place
    );
    _refused integer[];
    _place integer;
begin
    loop
        _refused := '{}';
        foreach _place in array _left loop
            if penstock._comes_too_soon(q, g, _events[_place], _tokens[_place], _positions[_place], _now) then
                _states[_place] := 'out_of_order';
                _refused := _refused || _place;
            else
                _states[_place] := penstock._settle_one(
                    q, g, _events[_place], _tokens[_place], _positions[_place], _reasons[_place], _delays[_place], _now
                );
            end if;
        end loop;
        exit when cardinality(_refused) in (0, cardinality(_left));
        _left := _refused;
    end loop;
    return _states;
end
$$;

-- Whether a message in flight would end although something was handed out before it under the same token and in the same
-- shard that is still in flight, or whose lease has lapsed and which will be tried again.
create or replace function penstock._comes_too_soon(
    q penstock.queue, g penstock.reader, _event text, _token bigint, _seq bigint, _now bigint
) returns boolean
language plpgsql stable as $$
declare
    own record;
begin
    select n.shard, n.priority, one.attempt into own
    from (
        select lane_id, 1 as attempt from penstock.lease
        where group_id = g.group_id and token = _token and ends_at - _now > 0 and positions @> _seq
        union all
        select lane_id, attempt from penstock.tracked
        where group_id = g.group_id and seq = _seq and state = 'leased' and token = _token and until_at > _now
    ) as one
    join penstock.lane as n using (lane_id);
    if not found or _event not in ('ack', 'reject', 'nak')
        or (_event = 'nak' and (q.max_retries is null or own.attempt <= q.max_retries)) then
        return false;
    end if;
    return exists (
        select 1 from penstock.lease as e join penstock.lane as n using (lane_id)
        where e.group_id = g.group_id and e.token = _token and n.shard = own.shard
            and (n.priority < own.priority or (n.priority = own.priority and e.first < _seq))
    ) or exists (
        select 1 from penstock.tracked as t join penstock.lane as n using (lane_id)
        where t.group_id = g.group_id and t.token = _token and t.state = 'leased' and n.shard = own.shard
            and (t.priority < own.priority or (t.priority = own.priority and t.seq < _seq))
    );
end
$$;

-- Ack those of the positions that are in the leases of a token; gives them back.
create or replace function penstock._ack_some(
    q penstock.queue, g penstock.reader, _token bigint, _positions bigint[], _now bigint
) returns bigint[]
language plpgsql as $$
declare
    e penstock.lease;
    part penstock.lease;
    _wanted int8multirange := (select range_agg(int8range(one, one + 1)) from unnest(_positions) as one);
    _seqs bigint[];
    _done bigint[] := '{}';
begin
    for e in
        select * from penstock.lease
        where group_id = g.group_id and token = _token and ends_at - _now > 0 and positions && _wanted
        order by lane_id
        for update
    loop
        part := e;
        part.positions := e.positions * _wanted;
        _seqs := penstock._members(part.positions);
        part.n := cardinality(_seqs);
        part.first := lower(part.positions);
        part.last := upper(part.positions) - 1;
        perform penstock._carve(e, part.positions, _seqs);
        perform penstock._succeed(q.queue_id, g.group_id, q.primary_group_id, part, _now);
        _done := _done || _seqs;
    end loop;
    return _done;
end
$$;

-- The positions in a multirange, one by one.
create or replace function penstock._members(_positions int8multirange) returns bigint[]
language sql immutable as $$
    select coalesce(array_agg(seq), '{}')
    from unnest(_positions) as stretch
    cross join lateral generate_series(lower(stretch), upper(stretch) - 1) as seq
$$;

-- Take positions out of a lease; what is left stays in flight.
create or replace function penstock._carve(e penstock.lease, _positions int8multirange, _seqs bigint[]) returns void
language plpgsql as $$
declare
    _left int8multirange := e.positions - _positions;
begin
    if isempty(_left) then
        delete from penstock.lease where group_id = e.group_id and token = e.token and lane_id = e.lane_id;
    else
        update penstock.lease
        set positions = _left, first = lower(_left), last = upper(_left) - 1, n = e.n - cardinality(_seqs),
            checksum = e.checksum - (select sum(one) from unnest(_seqs) as one)::bigint
        where group_id = e.group_id and token = e.token and lane_id = e.lane_id;
    end if;
end
$$;

create or replace function penstock._settle_one(
    q penstock.queue, g penstock.reader, _event text, _token bigint, _seq bigint, _reason text,
    _delay double precision, _now bigint
) returns text
language plpgsql as $$
declare
    fl penstock.flight := penstock._land(g.group_id, _token, _seq, _now);
    _state text;
begin
    if fl.seq is not null then
        return penstock._conclude(q, g, fl, _event, _reason, _delay, _now);
    end if;
    -- The same token did the same before: repeating it is harmless. No receive is looked for, so no lane is needed.
    select e.state into _state from penstock._entries(q.queue_id, -1, _seq) as e
    where e.group_id = g.group_id and e.token = _token and e.event = _event
    limit 1;
    return _state;
end
$$;

-- Take a message out of its lease, if this token still has the right to settle it.
create or replace function penstock._land(_group_id integer, _token bigint, _seq bigint, _now bigint)
returns penstock.flight
language plpgsql as $$
declare
    t penstock.tracked;
    e penstock.lease;
    m penstock.log;
begin
    delete from penstock.tracked
    where group_id = _group_id and seq = _seq and state = 'leased' and token = _token and until_at > _now
    returning * into t;
    if found then
        return penstock._tracked_flight(t);
    end if;
    select * into e from penstock.lease
    where group_id = _group_id and token = _token and ends_at - _now > 0 and positions @> _seq
    for update;
    if not found then
        return null;
    end if;
    perform penstock._carve(e, int8multirange(int8range(_seq, _seq + 1)), array[_seq]);
    select * into m from penstock.log where seq = _seq and lane_id = e.lane_id;
    return penstock._as_flight(m, (select priority from penstock.lane where lane_id = e.lane_id), _token, e.consumer);
end
$$;

create or replace function penstock._tracked_flight(t penstock.tracked) returns penstock.flight
language sql immutable as $$
    select row (
        t.seq, t.lane_id, t.priority, t.attempt, t.token, t.consumer, t.reason, t.created_at, t.id, t.content_type,
        t.headers, t.expires_at, t.deadline_at, t.address, t.key, t.batch_id, t.created_by, t.available_at, t.payload
    )::penstock.flight
$$;

-- Where a message that was in flight goes, by the lifecycle table, and writing it down.
create or replace function penstock._conclude(
    q penstock.queue, g penstock.reader, fl penstock.flight, _event text, _reason text, _delay double precision,
    _now bigint
) returns text
language plpgsql as $$
declare
    _at_most_once boolean := q.delivery = 'at_most_once';
    _is_late boolean := coalesce(fl.deadline_at <= _now, false);
    _has_retries boolean := q.max_retries is null or fl.attempt <= q.max_retries;
    _attempt integer := fl.attempt;
    _wait bigint := 0;
    _state text;
    _said text := _event;
    _why text;
begin
    case _event
        when 'ack' then
            _state := 'succeeded';
        when 'reject' then
            _state := 'rejected';
        when 'nak' then
            if not _has_retries or (_at_most_once and _is_late) then
                _state := 'failed';
            else
                _wait := penstock._us(greatest(0, coalesce(_delay, penstock._backoff(q, fl.attempt))));
            end if;
        when 'reschedule' then
            _wait := penstock._us(greatest(0, coalesce(_delay, 0)));
            _attempt := 0;
        when 'release' then
            _attempt := fl.attempt - 1;
        when 'lease_end' then
            if fl.expires_at <= _now then
                _said := 'expire';
                _state := 'expired';
            elsif _at_most_once and _is_late then
                _said := 'deadline';
                _state := 'expired';
            elsif _at_most_once then
                _state := 'lease_expired';
            elsif not _has_retries then
                _state := 'failed';
            end if;
        else
            raise exception using errcode = 'PN100', message = format('%s does not happen to a leased message', _event);
    end case;
    if _state is null then
        -- Live again, unless the batch was cancelled meanwhile.
        if fl.batch_id is not null and exists (
            select 1 from penstock.batch where batch_id = fl.batch_id and state in ('cancelling', 'cancelled')
        ) then
            _state := 'cancelled';
        else
            _state := case when _wait > 0 then 'held' else 'ready' end;
        end if;
    end if;
    _why := coalesce(_reason, penstock._reason(_said));
    if _state not in ('held', 'ready') then
        perform penstock._end(
            q, g, fl, _said, _state, fl.consumer, _why, fl.attempt, fl.token, true, _now
        );
        return _state;
    end if;
    perform penstock._record(
        q.queue_id, g.group_id, _said, _state, fl.seq, fl.consumer, _why, fl.attempt, fl.token, _now
    );
    if _event = 'reschedule' then
        fl.expires_at := fl.expires_at + _wait;
    end if;
    fl.reason := coalesce(_why, fl.reason);
    fl.consumer := null;
    perform penstock._track(g.group_id, fl, _state, _attempt, _now + _wait, null);
    if _state = 'ready' then
        perform penstock._wake(q.queue_id);
    end if;
    if q.ordered and not _at_most_once and _event <> 'release' then
        perform penstock._release_behind(q, g, fl, _now);
    end if;
    return _state;
end
$$;

-- How long a message that failed waits: base × factor^(attempt - 1), at most the maximum, plus a random part.
create or replace function penstock._backoff(q penstock.queue, _attempt integer) returns double precision
language sql volatile as $$
    select least(q.backoff_base_seconds * q.backoff_factor ^ least(_attempt - 1, 64), q.backoff_max_seconds)
        + q.backoff_jitter_seconds * penstock._random()
$$;

-- Look after a message one by one from now on.
create or replace function penstock._track(
    _group_id integer, fl penstock.flight, _state text, _attempt integer, _until_at bigint, _leased_at bigint
) returns void
language sql as $$
    insert into penstock.tracked (
        group_id, seq, lane_id, priority, state, attempt, until_at, token, leased_at, consumer, reason, created_at, id,
        content_type, headers, expires_at, deadline_at, address, key, batch_id, created_by, available_at, payload
    ) values (
        _group_id, fl.seq, fl.lane_id, fl.priority, _state, _attempt, _until_at, fl.token, _leased_at, fl.consumer,
        fl.reason, fl.created_at, fl.id, fl.content_type, fl.headers, fl.expires_at, fl.deadline_at, fl.address, fl.key,
        fl.batch_id, fl.created_by, fl.available_at, fl.payload
    )
$$;

-- In an ordered queue nothing may be done before what comes first: give back what was handed out behind it.
create or replace function penstock._release_behind(
    q penstock.queue, g penstock.reader, blocking penstock.flight, _now bigint
) returns void
language plpgsql as $$
declare
    _shard integer := (select shard from penstock.lane where lane_id = blocking.lane_id);
    _seq bigint;
    fl penstock.flight;
begin
    for _seq in
        select unnest(penstock._members(e.positions)) as seq
        from penstock.lease as e join penstock.lane as n using (lane_id)
        where e.group_id = g.group_id and e.token = blocking.token and n.shard = _shard
        union all
        select t.seq from penstock.tracked as t join penstock.lane as n using (lane_id)
        where t.group_id = g.group_id and t.token = blocking.token and t.state = 'leased' and n.shard = _shard
        order by seq
    loop
        continue when _seq <= blocking.seq;
        fl := penstock._land(g.group_id, blocking.token, _seq, _now);
        if fl.seq is not null then
            perform penstock._conclude(
                q, g, fl, 'release',
                format('behind message at position %s, which is tried again', blocking.seq), null, _now
            );
        end if;
    end loop;
end
$$;
