-- leased -> ready or an outcome, because a lease ended. Everything here works on positions: the server copies a message
-- from row to row, and none is gathered in a variable, because messages may be large and many.

-- End lapsed leases of a group, best priority first, at most _most messages; with _consumer, also what this consumer
-- holds. Beyond _least messages it stops at 16 MB too. Gives back how many messages they were.
drop function if exists penstock._reclaim(penstock.queue, penstock.reader, text, bigint);
create or replace function penstock._reclaim(
    q penstock.queue, g penstock.reader, _consumer text, _now bigint, _least integer, _most integer
) returns integer
language plpgsql as $$
declare
    e penstock.lease;
    _seqs bigint[];
    _size bigint;
    _bytes bigint := 0;
    _count integer := 0;
begin
    if q.ordered and q.delivery <> 'at_most_once' then
        return penstock._reclaim_in_order(q, g, _consumer, _now);
    end if;
    for e in
        select l.* from penstock.lease as l join penstock.lane as n using (lane_id)
        where l.group_id = g.group_id and (l.ends_at <= _now or l.consumer = _consumer)
        order by n.priority, l.first
        limit _most
        for update of l skip locked
    loop
        select array_agg(one.seq order by one.seq), max(one.before + one.size) into _seqs, _size
        from (
            select m.seq, octet_length(m.payload) as size, row_number() over (order by m.seq) as place,
                sum(octet_length(m.payload)) over (order by m.seq) - octet_length(m.payload) as before
            from penstock.log as m
            where m.lane_id = e.lane_id and m.seq = any (penstock._members(e.positions))
        ) as one
        where one.place <= _least - _count or (one.place <= _most - _count and _bytes + one.before < 16777216);
        if _seqs is null then
            -- Nothing of it is in the log any more.
            delete from penstock.lease where group_id = e.group_id and token = e.token and lane_id = e.lane_id;
            continue;
        end if;
        perform penstock._end_lease(q, g, e, _seqs, 'lease_end', _consumer, _now);
        _count := _count + cardinality(_seqs);
        _bytes := _bytes + _size;
        exit when _count >= _most or (_count >= _least and _bytes >= 16777216);
    end loop;
    _seqs := array(
        select t.seq from penstock.tracked as t
        where t.group_id = g.group_id and t.state = 'leased' and (t.until_at <= _now or t.consumer = _consumer)
        order by t.priority, t.seq
        limit _most - _count
        for update skip locked
    );
    perform penstock._end_tracked_lease(q, g, _seqs, 'lease_end', _consumer, _now);
    return _count + cardinality(_seqs);
end
$$;

-- The same for an ordered queue, which has one lease per shard. A consumer was at work on the first message of its lease:
-- the others did not fail with it. They are released before the first is tried again, which would release them too.
create or replace function penstock._reclaim_in_order(
    q penstock.queue, g penstock.reader, _consumer text, _now bigint
) returns integer
language plpgsql as $$
declare
    e penstock.lease;
    _firsts bigint[];
    _seqs bigint[];
    _tracked bigint[];
    _count integer := 0;
begin
    _tracked := array(
        select t.seq from penstock.tracked as t
        where t.group_id = g.group_id and t.state = 'leased' and (t.until_at <= _now or t.consumer = _consumer)
        order by t.seq
        for update skip locked
    );
    _firsts := array(
        select min(one.seq) from (
            select l.token, l.lane_id, l.first as seq from penstock.lease as l
            where l.group_id = g.group_id and (l.ends_at <= _now or l.consumer = _consumer)
            union all
            select t.token, t.lane_id, t.seq from penstock.tracked as t
            where t.group_id = g.group_id and t.seq = any (_tracked)
        ) as one
        join penstock.lane as n using (lane_id)
        group by one.token, n.shard
    );
    for e in
        select * from penstock.lease as l
        where l.group_id = g.group_id and (l.ends_at <= _now or l.consumer = _consumer)
        for update skip locked
    loop
        _seqs := array(select one from unnest(penstock._members(e.positions)) as one where one <> all (_firsts));
        perform penstock._end_lease(q, g, e, _seqs, 'release', _consumer, _now);
        _count := _count + cardinality(_seqs);
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

-- The lease on some messages of one receive ends. Those that are tried again are copied in one statement; what else
-- happens to the others is decided one by one.
create or replace function penstock._end_lease(
    q penstock.queue, g penstock.reader, e penstock.lease, _seqs bigint[], _event text, _consumer text, _now bigint
) returns void
language plpgsql as $$
declare
    _positions int8multirange := (select range_agg(int8range(one, one + 1)) from unnest(_seqs) as one);
    _gone text := case when e.consumer = _consumer then format('consumer %s is gone', _consumer) end;
    _why text := coalesce(_gone, penstock._reason(_event));
    _priority integer := (select priority from penstock.lane where lane_id = e.lane_id);
    _ready bigint[];
    m penstock.log;
begin
    if _positions is null then
        return;
    end if;
    perform penstock._carve(e, _positions, _seqs);
    with copied as (
        insert into penstock.tracked (
            group_id, seq, lane_id, priority, state, attempt, until_at, token, reason, created_at, id, content_type,
            headers, expires_at, deadline_at, address, key, batch_id, created_by, available_at, payload
        )
        select g.group_id, l.seq, l.lane_id, _priority, 'ready', case _event when 'release' then 0 else 1 end, _now,
            e.token, _why, l.created_at, l.id, l.content_type, l.headers, l.expires_at, l.deadline_at, l.address, l.key,
            l.batch_id, l.created_by, l.available_at, l.payload
        from penstock.log as l
        where l.lane_id = e.lane_id and l.seq = any (_seqs)
            and penstock._is_tried_again(q, _event, 1, l.expires_at, l.batch_id, _now)
        returning seq
    )
    select array_agg(seq order by seq) into _ready from copied;
    if _ready is not null then
        insert into penstock.step (
            entry, queue_id, group_id, tx, at, token, first, last, n, attempt, event, state, by, reason, positions
        ) values (
            nextval('penstock.entry'), q.queue_id, g.group_id, pg_current_xact_id(), greatest(_now, penstock.now_us()),
            e.token, _ready[1], _ready[cardinality(_ready)], cardinality(_ready), 1, _event, 'ready',
            e.consumer, _why, penstock._gaps(_ready, _ready[1], _ready[cardinality(_ready)])
        );
        perform penstock._wake(q.queue_id);
    end if;
    for m in
        select * from penstock.log as l
        where l.lane_id = e.lane_id and l.seq = any (_seqs) and l.seq <> all (coalesce(_ready, '{}'))
        order by l.seq
    loop
        perform penstock._conclude(
            q, g, penstock._as_flight(m, _priority, e.token, e.consumer), _event, _gone, null, _now
        );
    end loop;
end
$$;

-- The same for messages that are looked after one by one: their copies stay where they are.
create or replace function penstock._end_tracked_lease(
    q penstock.queue, g penstock.reader, _seqs bigint[], _event text, _consumer text, _now bigint
) returns void
language plpgsql as $$
declare
    one record;
    t penstock.tracked;
    _gone text;
    _why text;
begin
    for one in
        select seq, token, attempt, consumer,
            penstock._is_tried_again(q, _event, attempt, expires_at, batch_id, _now) as is_ready
        from penstock.tracked where group_id = g.group_id and seq = any (_seqs)
        order by seq
    loop
        _gone := case when one.consumer = _consumer then format('consumer %s is gone', _consumer) end;
        if not one.is_ready then
            delete from penstock.tracked where group_id = g.group_id and seq = one.seq returning * into t;
            perform penstock._conclude(q, g, penstock._tracked_flight(t), _event, _gone, null, _now);
            continue;
        end if;
        _why := coalesce(_gone, penstock._reason(_event));
        update penstock.tracked
        set state = 'ready', attempt = one.attempt - case _event when 'release' then 1 else 0 end, until_at = _now,
            leased_at = null, consumer = null, reason = _why
        where group_id = g.group_id and seq = one.seq;
        perform penstock._record(
            q.queue_id, g.group_id, _event, 'ready', one.seq, one.consumer, _why, one.attempt, one.token, _now
        );
        perform penstock._wake(q.queue_id);
    end loop;
end
$$;

-- Whether a message whose lease ended is simply ready again. In all other cases penstock._conclude decides; in an ordered
-- queue it also releases what was handed out behind the message.
create or replace function penstock._is_tried_again(
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
