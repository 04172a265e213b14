-- leased -> leased, with a later end.

-- Extend leases to at least _seconds from now, within the expiry and the deadline: the new ends, null when lost. A
-- lease never gets shorter, and one that a deadline has ended stays ended.
create or replace function penstock.extend_each(
    _queue text, _group text, _tokens bigint[], _positions bigint[], _seconds double precision
) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    _now bigint := penstock.now_us();
    -- Null when the queue was deleted: its leases are lost.
    _group_id integer := (
        select r.group_id from penstock.group as r join penstock.queue as u using (queue_id)
        where u.name = _queue and r.name = _group
    );
    _ends bigint[] := array_fill(null::bigint, array[cardinality(_tokens)]);
    _token bigint;
    e penstock.lease;
    t penstock.tracked;
    msg penstock.message_row;
    _end bigint;
    _least bigint;
    _most bigint;
    _asked int8multirange;
begin
    -- Whole leases at once, when the times of their messages do not tell them apart.
    for _token in select distinct one from unnest(_tokens) as one order by one loop
        select range_agg(int8range(position, position + 1)) into _asked
        from unnest(_tokens, _positions) as one (token, position) where token = _token;
        for e in
            select * from penstock.lease
            where group_id = _group_id and token = _token and ends_at - _now > 0 and positions <@ _asked
            order by lane_id for update
        loop
            select min(one.ends), max(one.ends) into _least, _most from (
                select greatest(
                    e.ends_at, penstock._lease_end(_now, _seconds, l.expires_at, l.deadline_at)
                ) as ends
                from unnest(penstock._list_positions(e.positions)) as member
                join penstock.log as l on l.position = member and l.lane_id = e.lane_id
            ) as one;
            if _least = _most then
                update penstock.lease set ends_at = _least
                where group_id = e.group_id and token = e.token and lane_id = e.lane_id;
                for place in 1..cardinality(_tokens) loop
                    if _tokens[place] = _token and e.positions @> _positions[place] then
                        _ends[place] := _least;
                    end if;
                end loop;
            end if;
        end loop;
    end loop;
    for place in 1..cardinality(_tokens) loop
        continue when _ends[place] is not null;
        select * into t from penstock.tracked
        where group_id = _group_id and position = _positions[place] and token = _tokens[place] and state = 'leased'
            and penstock._can_settle(until_at, deadline_at, expires_at, _now)
        for update;
        if found then
            _end := t.until_at;
            if _end > _now then
                _end := greatest(_end, penstock._lease_end(_now, _seconds, t.expires_at, t.deadline_at));
                update penstock.tracked set until_at = _end where group_id = t.group_id and position = t.position;
            end if;
            _ends[place] := _end;
            continue;
        end if;
        select k.* into e from penstock.lease as k
        join penstock.log as l on l.position = _positions[place] and l.lane_id = k.lane_id
        where k.group_id = _group_id and k.token = _tokens[place] and k.positions @> _positions[place]
            and penstock._can_settle(k.ends_at, l.deadline_at, l.expires_at, _now);
        continue when not found;
        if e.ends_at <= _now then
            _ends[place] := e.ends_at;
            continue;
        end if;
        msg := penstock._take_from_lease(_group_id, _tokens[place], _positions[place], _now);
        -- Somebody was faster while this one waited for the lease.
        continue when msg.position is null;
        _end := greatest(e.ends_at, penstock._lease_end(_now, _seconds, msg.expires_at, msg.deadline_at));
        perform penstock._track_message(_group_id, msg, 'leased', 1, _end, e.leased_at);
        _ends[place] := _end;
    end loop;
    if array_position(_ends, null) is not null then
        perform penstock._check_isolation('an extension that finds no lease');
    end if;
    return _ends;
end
$$;
