-- leased -> ready or an outcome, because a lease ended. Everything here works on positions: the server copies messages
-- from row to row, and none is collected in a variable, because messages may be large and many.

-- Reclaim lapsed leases of a group, best priority first, at most _most messages; with _consumer also its open ones.
-- Beyond _least messages it stops at 16 MB too. Returns the number of messages.
create or replace function penstock._reclaim_leases(
    q penstock.queue, g penstock.group, _consumer text, _now bigint, _least integer, _most integer
) returns integer
language plpgsql as $$
declare
    e penstock.lease;
    _positions bigint[];
    _size bigint;
    _bytes bigint := 0;
    _count integer := 0;
begin
    if q.ordered and q.delivery <> 'at_most_once' then
        return penstock._reclaim_ordered_leases(q, g, _consumer, _now);
    end if;
    for e in
        select l.* from penstock.lease as l join penstock.lane as n using (lane_id)
        where l.group_id = g.group_id and (l.ends_at <= _now or l.consumer = _consumer)
        order by n.priority, l.first
        limit _most
        for update of l skip locked
    loop
        select array_agg(one.position order by one.position), max(one.before + one.size) into _positions, _size
        from (
            select m.position, octet_length(m.payload) as size, row_number() over (order by m.position) as place,
                sum(octet_length(m.payload)) over (order by m.position) - octet_length(m.payload) as before
            from penstock.log as m
            where m.lane_id = e.lane_id and m.position = any (penstock._list_positions(e.positions))
        ) as one
        where one.place <= _least - _count or (one.place <= _most - _count and _bytes + one.before < 16777216);
        if _positions is null then
            -- Nothing of it is in the log any more.
            delete from penstock.lease where group_id = e.group_id and token = e.token and lane_id = e.lane_id;
            continue;
        end if;
        perform penstock._end_lease(q, g, e, _positions, 'lease_end', _consumer, _now);
        _count := _count + cardinality(_positions);
        _bytes := _bytes + _size;
        exit when _count >= _most or (_count >= _least and _bytes >= 16777216);
    end loop;
    _positions := array(
        select t.position from penstock.tracked as t
        where t.group_id = g.group_id and t.state = 'leased' and (t.until_at <= _now or t.consumer = _consumer)
        order by t.priority, t.position
        limit _most - _count
        for update skip locked
    );
    perform penstock._end_tracked_lease(q, g, _positions, 'lease_end', _consumer, _now);
    return _count + cardinality(_positions);
end
$$;

-- Reclaim leases of an ordered queue, which has one lease per shard. The consumer was working on the first message of
-- its lease: the others are released without counting the attempt, before the first is retried, which would release
-- them too.
create or replace function penstock._reclaim_ordered_leases(
    q penstock.queue, g penstock.group, _consumer text, _now bigint
) returns integer
language plpgsql as $$
declare
    e penstock.lease;
    _firsts bigint[];
    _positions bigint[];
    _tracked bigint[];
    _count integer := 0;
begin
    _tracked := array(
        select t.position from penstock.tracked as t
        where t.group_id = g.group_id and t.state = 'leased' and (t.until_at <= _now or t.consumer = _consumer)
        order by t.position
        for update skip locked
    );
    _firsts := array(
        select distinct on (one.token, one.shard) one.position from (
            select l.token, n.shard, n.priority, l.first as position
            from penstock.lease as l join penstock.lane as n using (lane_id)
            where l.group_id = g.group_id and (l.ends_at <= _now or l.consumer = _consumer)
            union all
            select t.token, n.shard, t.priority, t.position
            from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = g.group_id and t.position = any (_tracked)
        ) as one
        order by one.token, one.shard, one.priority, one.position
    );
    for e in
        select * from penstock.lease as l
        where l.group_id = g.group_id and (l.ends_at <= _now or l.consumer = _consumer)
        for update skip locked
    loop
        _positions := array(select one from unnest(penstock._list_positions(e.positions)) as one where one <> all (_firsts));
        perform penstock._end_lease(q, g, e, _positions, 'release', _consumer, _now);
        _count := _count + cardinality(_positions);
    end loop;
    perform penstock._end_tracked_lease(
        q, g, array(select one from unnest(_tracked) as one where one <> all (_firsts)), 'release', _consumer, _now
    );
    for e in
        select * from penstock.lease as l
        where l.group_id = g.group_id and (l.ends_at <= _now or l.consumer = _consumer) and l.first = any (_firsts)
        order by l.first
        for update skip locked
    loop
        perform penstock._end_lease(q, g, e, array[e.first], 'lease_end', _consumer, _now);
        _count := _count + 1;
    end loop;
    perform penstock._end_tracked_lease(
        q, g, array(select one from unnest(_tracked) as one where one = any (_firsts)), 'lease_end', _consumer, _now
    );
    return _count + cardinality(_tracked);
end
$$;

-- End the lease on some messages of one receive. Messages that are retried are copied in one statement; the others are
-- decided one by one.
create or replace function penstock._end_lease(
    q penstock.queue, g penstock.group, e penstock.lease, _position_array bigint[], _event text, _consumer text, _now bigint
) returns void
language plpgsql as $$
declare
    _positions int8multirange := (select range_agg(int8range(one, one + 1)) from unnest(_position_array) as one);
    _gone text := case when e.consumer = _consumer then format('consumer %s is gone', _consumer) end;
    _why text := coalesce(_gone, penstock._default_reason(_event));
    _priority integer := (select priority from penstock.lane where lane_id = e.lane_id);
    _ready bigint[];
    m penstock.log;
begin
    if _positions is null then
        return;
    end if;
    perform penstock._remove_from_lease(e, _positions, _position_array);
    with copied as (
        insert into penstock.tracked (
            group_id, position, lane_id, priority, state, attempt, until_at, token, reason, created_at, id, content_type,
            headers, expires_at, deadline_at, address, key, batch_id, created_by, available_at, payload
        )
        select g.group_id, l.position, l.lane_id, _priority, 'ready', case _event when 'release' then 0 else 1 end, _now,
            e.token, _why, l.created_at, l.id, l.content_type, l.headers, l.expires_at, l.deadline_at, l.address, l.key,
            l.batch_id, l.created_by, l.available_at, l.payload
        from penstock.log as l
        where l.lane_id = e.lane_id and l.position = any (_position_array)
            and penstock._is_retried(q, _event, 1, l.expires_at, l.batch_id, _now)
        returning position
    )
    select array_agg(position order by position) into _ready from copied;
    if _ready is not null then
        perform penstock._record_audit(
            q.queue_id, g.group_id, _event, 'ready', _ready[1], e.consumer, _why, 1, e.token, _now, null,
            _ready[cardinality(_ready)], cardinality(_ready),
            penstock._compact_positions(_ready, _ready[1], _ready[cardinality(_ready)])
        );
        perform penstock._wake_receivers(q.queue_id);
    end if;
    for m in
        select * from penstock.log as l
        where l.lane_id = e.lane_id and l.position = any (_position_array) and l.position <> all (coalesce(_ready, '{}'))
        order by l.position
    loop
        perform penstock._apply_event(
            q, g, penstock._log_row(m, _priority, e.token, e.consumer), _event, _gone, null, _now
        );
    end loop;
end
$$;

-- End the leases of messages that are tracked one by one: their copies stay where they are.
create or replace function penstock._end_tracked_lease(
    q penstock.queue, g penstock.group, _positions bigint[], _event text, _consumer text, _now bigint
) returns void
language plpgsql as $$
declare
    one record;
    t penstock.tracked;
    _gone text;
    _why text;
begin
    for one in
        select position, token, attempt, consumer,
            penstock._is_retried(q, _event, attempt, expires_at, batch_id, _now) as is_ready
        from penstock.tracked where group_id = g.group_id and position = any (_positions)
        order by position
    loop
        _gone := case when one.consumer = _consumer then format('consumer %s is gone', _consumer) end;
        if not one.is_ready then
            delete from penstock.tracked where group_id = g.group_id and position = one.position returning * into t;
            perform penstock._apply_event(q, g, penstock._tracked_row(t), _event, _gone, null, _now);
            continue;
        end if;
        _why := coalesce(_gone, penstock._default_reason(_event));
        update penstock.tracked
        set state = 'ready', attempt = one.attempt - case _event when 'release' then 1 else 0 end, until_at = _now,
            leased_at = null, consumer = null, reason = _why
        where group_id = g.group_id and position = one.position;
        perform penstock._record_audit(
            q.queue_id, g.group_id, _event, 'ready', one.position, one.consumer, _why, one.attempt, one.token, _now
        );
        perform penstock._wake_receivers(q.queue_id);
    end loop;
end
$$;

-- Whether a message whose lease ended just becomes ready. All other cases are decided by penstock._apply_event; in an
-- ordered queue that also releases what was handed out behind the message.
create or replace function penstock._is_retried(
    q penstock.queue, _event text, _attempt integer, _expires_at bigint, _batch_id bigint, _now bigint
) returns boolean
language sql stable as $$
    select (
            _event = 'release'
            or q.delivery = 'at_least_once' and not q.ordered and (_expires_at <= _now) is not true
                and (q.max_retries is null or _attempt <= q.max_retries)
        )
        and (
            _batch_id is null
            or not exists (
                select 1 from penstock.batch where batch_id = _batch_id and state in ('cancelling', 'cancelled')
            )
        )
$$;
