-- Receiving what other consumers have in flight.

-- leased -> leased by another consumer: the leases end as if their time were up (or are released, when the attempt must
-- not count), and the messages are received again. Messages that are not in flight are left out, unless taken by force.
-- Returns the rows of a receive.
create or replace function penstock.take_over_leases(
    _queue text, _group text, _consumer text, _ids uuid[], _lease_seconds double precision, _counts boolean,
    _force boolean default false
) returns setof penstock.delivery_row
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    g penstock.group := penstock._get_group(q, _group);
    r penstock.receive_call;
    _tokens bigint[];
    e record;
    msg penstock.message_row;
    t penstock.tracked;
    _wanted bigint[];
    _seen bigint[] := '{}';
    _free bigint[] := '{}';
    _leased bigint[];
    _locked int8multirange;
    _position bigint;
begin
    perform penstock._refuse_stream_group(q, g);
    if _force then
        perform penstock._lock_lanes(q, g.group_id);
        -- As it is now: it may have been deleted meanwhile.
        q := penstock._get_queue(_queue);
        g := penstock._get_group(q, _group);
    end if;
    r.queue_id := q.queue_id;
    r.consumer := _consumer;
    r.lease_seconds := _lease_seconds;
    r.now := penstock.now_us();
    r.token := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    select array_agg(one.token), array_agg(one.position) into _tokens, _leased
    from penstock.leases(_queue, _group, _ids, null, 0, 1000000) as one;
    _locked := penstock._lock_leases(g.group_id, _tokens, _leased);
    for e in
        select one.token, one.position from unnest(_tokens, _leased) as one (token, position) order by one.token, one.position
    loop
        _seen := _seen || e.position;
        continue when not _locked @> e.position;
        r.token := greatest(r.token, e.token + 1);
        msg := penstock._take_from_lease(g.group_id, e.token, e.position, r.now);
        continue when msg.position is null;
        if penstock._apply_event(
            q, g, msg, case when _counts then 'lease_end' else 'release' end, format('taken over by %s', _consumer), null,
            r.now
        ) = 'ready' then
            _free := _free || e.position;
        end if;
    end loop;
    _wanted := array(
        select (penstock._locate_message(q, one.id)).position from unnest(_ids) with ordinality as one (id, place) order by one.place
    );
    if _force then
        foreach _position in array _wanted loop
            continue when _position is null or _position = any (_seen);
            _seen := _seen || _position;
            if penstock._force_ready(q, g, _position, r.now) then
                _free := _free || _position;
            end if;
        end loop;
    end if;
    for _position in select one from unnest(_free) as one order by array_position(_wanted, one) loop
        select * into t from penstock.tracked where group_id = g.group_id and position = _position for update;
        return next penstock._lease_retry(r, t);
    end loop;
    return next penstock._token_row(case when cardinality(_free) > 0 then r.token else 0 end, _group);
end
$$;

-- Lock leases in the order in which settlements lock them, and return the positions whose leases were locked. Leases
-- that another transaction keeps locked are given up after a timeout shorter than deadlock_timeout: this transaction
-- may hold locks of earlier calls that the other waits for.
create or replace function penstock._lock_leases(_group_id integer, _tokens bigint[], _positions bigint[])
returns int8multirange
language plpgsql set lock_timeout = '100ms' as $$
declare
    _locked int8multirange;
begin
    begin
        select range_agg(one.positions) into _locked from (
            select e.positions from penstock.lease as e
            where e.group_id = _group_id and e.token = any (_tokens)
            order by e.token, e.lane_id
            for update
        ) as one;
        return coalesce(_locked, '{}') + coalesce((
            select range_agg(int8range(one.position, one.position + 1)) from (
                select t.position from penstock.tracked as t
                where t.group_id = _group_id and t.position = any (_positions) and t.state = 'leased'
                order by t.token, t.position
                for update
            ) as one
        ), '{}');
    exception when lock_not_available then
        null;
    end;
    select range_agg(one.positions) into _locked from (
        select e.positions from penstock.lease as e
        where e.group_id = _group_id and e.token = any (_tokens)
        for update skip locked
    ) as one;
    return coalesce(_locked, '{}') + coalesce((
        select range_agg(int8range(one.position, one.position + 1)) from (
            select t.position from penstock.tracked as t
            where t.group_id = _group_id and t.position = any (_positions) and t.state = 'leased'
            for update skip locked
        ) as one
    ), '{}');
end
$$;
