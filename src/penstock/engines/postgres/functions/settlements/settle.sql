-- leased -> the state that the consumer requests, message by message.

-- Settle messages, each by its token: the resulting state, null when the lease was lost, or 'out_of_order' when an
-- ordered queue has an earlier message in flight. Repeating a settlement returns the same answer; with _marks it is
-- prefixed with =. Callers pass settlements in the order of their tokens: leases are locked one after the other.
create or replace function penstock.settle(
    _queue text, _group text, _events text[], _tokens bigint[], _positions bigint[], _reasons text[],
    _delays double precision[], _codes text[] default null, _marks boolean default false
) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off
as $$
declare
    _now bigint := penstock.now_us();
    _n integer := cardinality(_events);
    _states text[] := array_fill(null::text, array[cardinality(_events)]);
    _done bigint[];
    _from integer := 1;
    _upto integer;
    q penstock.queue;
    g penstock.group;
begin
    select * into q from penstock.queue where name = _queue;
    select * into g from penstock.group where queue_id = q.queue_id and name = _group;
    if g.group_id is null then
        perform penstock._check_isolation('a settle that finds no lease');
        return _states;
    end if;
    if q.ordered and q.delivery <> 'at_most_once' then
        _states := penstock._settle_in_order(q, g, _events, _tokens, _positions, _reasons, _delays, _codes, _now);
        _from := _n + 1;
    end if;
    while _from <= _n loop
        -- Consecutive plain acks of one token are one audit entry.
        _upto := _from;
        if _events[_from] = 'ack' and _reasons[_from] is null then
            while _upto < _n and _events[_upto + 1] = 'ack' and _reasons[_upto + 1] is null
                and _tokens[_upto + 1] = _tokens[_from] loop
                _upto := _upto + 1;
            end loop;
            _done := penstock._ack_positions(q, g, _tokens[_from], _positions[_from:_upto], _now);
        else
            _done := '{}';
        end if;
        for place in _from.._upto loop
            if _positions[place] = any (_done) then
                _states[place] := 'succeeded';
            else
                _states[place] := penstock._settle_one(
                    q, g, _events[place], _tokens[place], _positions[place], _reasons[place], _delays[place],
                    _codes[place], _now
                );
            end if;
        end loop;
        _from := _upto + 1;
    end loop;
    if array_position(_states, null) is not null then
        perform penstock._check_isolation('a settle that finds no lease');
    end if;
    if not _marks then
        _states := array(select ltrim(one.state, '=') from unnest(_states) with ordinality as one (state, place) order by place);
    end if;
    return _states;
end
$$;

-- Settle in an ordered queue, where no message ends before the earlier ones of the same lease and shard. The
-- settlements of one call may come in any order: refused ones are tried again after the others.
create or replace function penstock._settle_in_order(
    q penstock.queue, g penstock.group, _events text[], _tokens bigint[], _positions bigint[], _reasons text[],
    _delays double precision[], _codes text[], _now bigint
) returns text[]
language plpgsql as $$
declare
    _states text[] := array_fill(null::text, array[cardinality(_events)]);
    _left integer[] := array(
        select place::integer from unnest(_positions) with ordinality as one (position, place) order by position, place
    );
    _refused integer[];
    _place integer;
begin
    loop
        _refused := '{}';
        foreach _place in array _left loop
            if penstock._is_out_of_order(q, g, _events[_place], _tokens[_place], _positions[_place], _now) then
                _states[_place] := 'out_of_order';
                _refused := _refused || _place;
            else
                _states[_place] := penstock._settle_one(
                    q, g, _events[_place], _tokens[_place], _positions[_place], _reasons[_place], _delays[_place],
                    _codes[_place], _now
                );
            end if;
        end loop;
        exit when cardinality(_refused) in (0, cardinality(_left));
        _left := _refused;
    end loop;
    return _states;
end
$$;

-- Whether a message in flight would end while an earlier one of the same token and shard is still in flight, or has a
-- lapsed lease and will be retried.
create or replace function penstock._is_out_of_order(
    q penstock.queue, g penstock.group, _event text, _token bigint, _position bigint, _now bigint
) returns boolean
language plpgsql stable as $$
declare
    own record;
begin
    -- A message that never was in a lane of its priority, such as a member of a cancelled batch that was redriven, has its
    -- priority in its own row alone.
    select n.shard, coalesce(one.priority, n.priority) as priority, one.attempt into own
    from (
        select e.lane_id, 1 as attempt, null::integer as priority from penstock.lease as e
        join penstock.log as m on m.position = _position and m.lane_id = e.lane_id
        where e.group_id = g.group_id and e.token = _token and e.positions @> _position
            and penstock._can_settle(e.ends_at, m.deadline_at, m.expires_at, _now)
        union all
        select lane_id, attempt, priority from penstock.tracked
        where group_id = g.group_id and position = _position and state = 'leased' and token = _token
            and penstock._can_settle(until_at, deadline_at, expires_at, _now)
    ) as one
    join penstock.lane as n using (lane_id);
    if not found or _event not in ('ack', 'reject', 'nak')
        or (_event = 'nak' and (q.max_retries is null or own.attempt <= q.max_retries)) then
        return false;
    end if;
    return exists (
        select 1 from penstock.lease as e join penstock.lane as n using (lane_id)
        where e.group_id = g.group_id and e.token = _token and n.shard = own.shard
            and (n.priority < own.priority or (n.priority = own.priority and e.first < _position))
    ) or exists (
        select 1 from penstock.tracked as t join penstock.lane as n using (lane_id)
        where t.group_id = g.group_id and t.token = _token and t.state = 'leased' and n.shard = own.shard
            and (t.priority < own.priority or (t.priority = own.priority and t.position < _position))
    );
end
$$;

create or replace function penstock._settle_one(
    q penstock.queue, g penstock.group, _event text, _token bigint, _position bigint, _reason text,
    _delay double precision, _code text, _now bigint
) returns text
language plpgsql as $$
declare
    msg penstock.message_row := penstock._take_from_lease(g.group_id, _token, _position, _now);
    _state text;
begin
    if msg.position is not null then
        return penstock._apply_event(q, g, msg, _event, _reason, _delay, _now, _code);
    end if;
    -- The same token did the same before: repeating it is harmless. No receive is looked for, so no lane is needed.
    select '=' || e.state into _state from penstock._audit_entries(q.queue_id, -1, _position) as e
    where e.group_id = g.group_id and e.token = _token and e.event = _event
    limit 1;
    return _state;
end
$$;

-- Whether the token of a lease that was not reclaimed still settles. A lease that was cut short by the deadline of its
-- message may be reclaimed from then on; until then its consumer alone knows what became of the message and may settle.
create or replace function penstock._can_settle(_ends_at bigint, _deadline_at bigint, _expires_at bigint, _now bigint)
returns boolean
language sql immutable as $$
    select _ends_at > _now or (_ends_at = _deadline_at and (_expires_at <= _now) is not true) is true
$$;

-- Remove a message from its lease, if this token still has the right to settle it.
create or replace function penstock._take_from_lease(_group_id integer, _token bigint, _position bigint, _now bigint)
returns penstock.message_row
language plpgsql as $$
declare
    t penstock.tracked;
    e penstock.lease;
    m penstock.log;
begin
    -- Written so that the index of all leased ones does not fit: a table that is mostly empty has no statistics of a burst.
    delete from penstock.tracked
    where group_id = _group_id and position = _position and state is not distinct from 'leased' and token = _token
        and penstock._can_settle(until_at, deadline_at, expires_at, _now)
    returning * into t;
    if found then
        return penstock._tracked_row(t);
    end if;
    select * into e from penstock.lease
    where group_id = _group_id and token = _token and positions @> _position
    for update;
    if not found then
        return null;
    end if;
    select * into m from penstock.log where position = _position and lane_id = e.lane_id;
    if not penstock._can_settle(e.ends_at, m.deadline_at, m.expires_at, _now) then
        return null;
    end if;
    perform penstock._remove_from_lease(e, int8multirange(int8range(_position, _position + 1)), array[_position]);
    return penstock._log_row(m, (select priority from penstock.lane where lane_id = e.lane_id), _token, e.consumer);
end
$$;

create or replace function penstock._tracked_row(t penstock.tracked) returns penstock.message_row
language sql immutable as $$
    select row (
        t.position, t.lane_id, t.priority, t.attempt, t.token, t.consumer, t.reason, t.created_at, t.id, t.content_type,
        t.headers, t.expires_at, t.deadline_at, t.address, t.key, t.batch_id, t.created_by, t.available_at, t.payload
    )::penstock.message_row
$$;

-- Release the messages that were handed out behind a message of an ordered queue that is retried.
create or replace function penstock._release_following(
    q penstock.queue, g penstock.group, blocking penstock.message_row, _now bigint
) returns void
language plpgsql as $$
declare
    _shard integer := (select shard from penstock.lane where lane_id = blocking.lane_id);
    _position bigint;
    msg penstock.message_row;
begin
    for _position in
        select one.position from (
            select n.priority, unnest(penstock._list_positions(e.positions)) as position
            from penstock.lease as e join penstock.lane as n using (lane_id)
            where e.group_id = g.group_id and e.token = blocking.token and n.shard = _shard
            union all
            select t.priority, t.position from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = g.group_id and t.token = blocking.token and t.state = 'leased' and n.shard = _shard
        ) as one
        where (one.priority, one.position) > (blocking.priority, blocking.position)
        order by one.priority, one.position
    loop
        msg := penstock._take_from_lease(g.group_id, blocking.token, _position, _now);
        if msg.position is not null then
            perform penstock._apply_event(
                q, g, msg, 'release',
                format('behind message at position %s, which is tried again', blocking.position), null, _now
            );
        end if;
    end loop;
end
$$;
