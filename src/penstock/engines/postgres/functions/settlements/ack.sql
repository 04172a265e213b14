-- leased -> succeeded for whole receives and for several messages of one receive.

-- Ack a whole receive of first attempts, identified by the number and the sum of its positions; false, without effect,
-- when part of it was settled.
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
    -- The commonest case in one statement: as in penstock._record_success. A lease is found by its token and never by its end,
    -- here and elsewhere: an index by end is full of dead rows while a transaction is held open.
    with place as materialized (
        select u.queue_id, u.primary_group_id, u.ordered, r.group_id
        from penstock.queue as u join penstock.group as r using (queue_id)
        where u.name = _queue and r.name = _group
    ),
    gone as (
        delete from penstock.lease as k
        where k.group_id = (select group_id from place)
            and k.token = _token and k.n = _count and k.checksum = _checksum and k.ends_at - _now > 0
            and (not (select ordered from place) or penstock._count_leased(k.group_id, _token) = _count)
        returning k.*
    ),
    -- The one audit entry that _record_audit does not write: a call would make an ack a tenth slower.
    written as (
        insert into penstock.audit (
            entry, queue_id, group_id, tx, at, token, first, last, n, attempt, event, state, by, positions
        )
        select nextval('penstock.entry'), place.queue_id, gone.group_id, _tx, _now, token, first, last, n, 1,
            'ack', 'succeeded', consumer, case when last - first + 1 <> n then positions end
        from gone cross join place
    )
    select place.queue_id, positions, gone.group_id = primary_group_id and (
        exists (select 1 from penstock.batch_member where position between first and last)
        or exists (
            select 1 from penstock.address
            where queue_id = place.queue_id and position between first and last and outcome is null
        )
    ) as frees
    into f
    from gone cross join place;
    if found then
        if f.frees then
            perform penstock._free_addresses_and_batches(f.queue_id, f.positions, 'succeeded', null, _now);
        end if;
        return true;
    end if;
    select u.queue_id, u.primary_group_id, u.ordered, r.group_id into f
    from penstock.queue as u join penstock.group as r using (queue_id)
    where u.name = _queue and r.name = _group;
    if not found or (f.ordered and penstock._count_leased(f.group_id, _token) <> _count) then
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
        perform penstock._record_success(f.queue_id, f.group_id, f.primary_group_id, e, _now);
    end loop;
    return true;
end
$$;

-- The number of messages of a receive that are in flight.
create or replace function penstock._count_leased(_group_id integer, _token bigint) returns bigint
language sql stable as $$
    select coalesce((select sum(e.n) from penstock.lease as e where e.group_id = _group_id and e.token = _token), 0)
        + (select count(*) from penstock.tracked where group_id = _group_id and token = _token and state = 'leased')
$$;

-- Ack those of the positions that are in the leases of a token, and return them.
create or replace function penstock._ack_positions(
    q penstock.queue, g penstock.group, _token bigint, _positions bigint[], _now bigint
) returns bigint[]
language plpgsql as $$
declare
    e penstock.lease;
    part penstock.lease;
    _wanted int8multirange := (select range_agg(int8range(one, one + 1)) from unnest(_positions) as one);
    _position_array bigint[];
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
        _position_array := penstock._list_positions(part.positions);
        part.n := cardinality(_position_array);
        part.first := lower(part.positions);
        part.last := upper(part.positions) - 1;
        perform penstock._remove_from_lease(e, part.positions, _position_array);
        perform penstock._record_success(q.queue_id, g.group_id, q.primary_group_id, part, _now);
        _done := _done || _position_array;
    end loop;
    return _done;
end
$$;

-- Remove positions from a lease; the rest stays in flight.
create or replace function penstock._remove_from_lease(e penstock.lease, _positions int8multirange, _position_array bigint[]) returns void
language plpgsql as $$
declare
    _left int8multirange := e.positions - _positions;
begin
    if isempty(_left) then
        delete from penstock.lease where group_id = e.group_id and token = e.token and lane_id = e.lane_id;
    else
        update penstock.lease
        set positions = _left, first = lower(_left), last = upper(_left) - 1, n = e.n - cardinality(_position_array),
            checksum = e.checksum - (select sum(one) from unnest(_position_array) as one)::bigint
        where group_id = e.group_id and token = e.token and lane_id = e.lane_id;
    end if;
end
$$;

-- Record that the rest of a lease has succeeded; in the primary group free its addresses and finish its batches.
create or replace function penstock._record_success(
    _queue_id integer, _group_id integer, _primary_group_id integer, e penstock.lease, _now bigint
) returns void
language plpgsql as $$
begin
    perform penstock._record_audit(
        _queue_id, _group_id, 'ack', 'succeeded', e.first, e.consumer, null, 1, e.token, _now, null, e.last, e.n, e.positions
    );
    if _group_id is not distinct from _primary_group_id and (
        exists (select 1 from penstock.batch_member where position between e.first and e.last)
        or exists (
            select 1 from penstock.address
            where queue_id = _queue_id and position between e.first and e.last and outcome is null
        )
    ) then
        perform penstock._free_addresses_and_batches(_queue_id, e.positions, 'succeeded', null, _now);
    end if;
end
$$;
