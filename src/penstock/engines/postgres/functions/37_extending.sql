-- leased -> leased: longer.

-- leased -> leased, until at least _seconds from now, as far as its times allow: the new ends, null when lost. Only ever
-- longer.
create or replace function penstock.extend_each(
    _queue text, _group text, _tokens bigint[], _positions bigint[], _seconds double precision
) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    _now bigint := penstock.now_us();
    q penstock.queue := penstock._get_queue(_queue);
    g penstock.reader := penstock._get_group(q, _group);
    _ends bigint[] := array_fill(null::bigint, array[cardinality(_tokens)]);
    _token bigint;
    e penstock.lease;
    t penstock.tracked;
    m penstock.log;
    fl penstock.flight;
    _end bigint;
    _least bigint;
    _most bigint;
    _asked int8multirange;
begin
    -- Whole leases at once, when the times of their messages do not tell them apart.
    for _token in select distinct one from unnest(_tokens) as one order by one loop
        select range_agg(int8range(seq, seq + 1)) into _asked
        from unnest(_tokens, _positions) as one (token, seq) where token = _token;
        for e in
            select * from penstock.lease
            where group_id = g.group_id and token = _token and ends_at - _now > 0 and positions <@ _asked
            order by lane_id for update
        loop
            select min(one.ends), max(one.ends) into _least, _most from (
                select greatest(
                    e.ends_at, penstock._lease_end(_now, _seconds, l.expires_at, l.deadline_at)
                ) as ends
                from unnest(penstock._members(e.positions)) as member
                join penstock.log as l on l.seq = member and l.lane_id = e.lane_id
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
        where group_id = g.group_id and seq = _positions[place] and token = _tokens[place] and state = 'leased'
            and until_at > _now
        for update;
        if found then
            _end := greatest(t.until_at, penstock._lease_end(_now, _seconds, t.expires_at, t.deadline_at));
            update penstock.tracked set until_at = _end where group_id = t.group_id and seq = t.seq;
            _ends[place] := _end;
            continue;
        end if;
        select * into e from penstock.lease
        where group_id = g.group_id and token = _tokens[place] and ends_at - _now > 0 and positions @> _positions[place];
        continue when not found;
        fl := penstock._land(g.group_id, _tokens[place], _positions[place], _now);
        -- Somebody was faster while this one waited for the lease.
        continue when fl.seq is null;
        _end := greatest(e.ends_at, penstock._lease_end(_now, _seconds, fl.expires_at, fl.deadline_at));
        perform penstock._track(g.group_id, fl, 'leased', 1, _end, e.leased_at);
        _ends[place] := _end;
    end loop;
    if array_position(_ends, null) is not null then
        perform penstock._check_isolation('an extension that finds no lease');
    end if;
    return _ends;
end
$$;
