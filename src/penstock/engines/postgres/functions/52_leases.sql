-- Leases as others see them: who has what, and taking it over; and why a message does not run.

-- What a group has in flight now, in the order of the log: of given messages, of one consumer, or after a position.
create or replace function penstock.leases(
    _queue text, _group text, _ids uuid[], _consumer text, _after bigint, _limit bigint
) returns table (
    seq bigint, created_at bigint, id text, token bigint, consumer text, attempt integer, leased_at bigint,
    ends_at bigint
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue;
    _group_id integer;
    _now bigint := penstock.now_us();
    _wanted bigint[];
begin
    select * into q from penstock.queue where name = _queue;
    select group_id into _group_id from penstock.reader where queue_id = q.queue_id and name = _group;
    if _group_id is null then
        return;
    end if;
    if _ids is not null then
        _wanted := array(select (penstock._locate(q, one)).seq from unnest(_ids) as one);
    end if;
    return query
    select flying.* from (
        select m.seq, m.created_at, coalesce(m.id, penstock.made_id(m.created_at, m.seq))::text, e.token, e.consumer, 1,
            e.leased_at, e.ends_at
        from penstock.lease as e
        cross join lateral unnest(penstock._members(e.positions)) as one (seq)
        cross join lateral (
            select l.seq, l.created_at, l.id from penstock.log as l where l.seq = one.seq limit 1
        ) as m
        where e.group_id = _group_id and e.ends_at > _now and e.last > _after and one.seq > _after
            and (_consumer is null or e.consumer = _consumer) and (_wanted is null or one.seq = any (_wanted))
        union all
        select t.seq, t.created_at, coalesce(t.id, penstock.made_id(t.created_at, t.seq))::text, t.token, t.consumer,
            t.attempt, t.leased_at, t.until_at
        from penstock.tracked as t
        where t.group_id = _group_id and t.state = 'leased' and t.until_at > _now and t.seq > _after
            and (_consumer is null or t.consumer = _consumer) and (_wanted is null or t.seq = any (_wanted))
    ) as flying
    order by case when _wanted is null then flying.seq else array_position(_wanted, flying.seq) end
    limit _limit;
end
$$;

-- Older versions had it without force.
drop function if exists penstock.take_over(text, text, text, uuid[], double precision, boolean);

-- leased -> leased by another consumer: the leases end as if their time were up (or are released, when the attempt must
-- not count), and the messages are received anew. What is not in flight is left out, unless it is taken by force. Rows as
-- those of a receive.
create or replace function penstock.take_over(
    _queue text, _group text, _consumer text, _ids uuid[], _lease_seconds double precision, _counts boolean,
    _force boolean default false
) returns setof penstock.delivery_row
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    g penstock.reader := penstock._get_group(q, _group);
    _now bigint := penstock.now_us();
    _token bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    e record;
    fl penstock.flight;
    t penstock.tracked;
    row_ penstock.delivery_row;
    _wanted bigint[];
    _seen bigint[] := '{}';
    _free bigint[] := '{}';
    _seq bigint;
begin
    perform penstock._check_leasing(q, g);
    if _force then
        perform penstock._lock_lanes(q, g.group_id);
        select * into q from penstock.queue where queue_id = q.queue_id;
    end if;
    for e in select * from penstock.leases(_queue, _group, array(select distinct one from unnest(_ids) as one), null, 0, 1000000)
    loop
        _seen := _seen || e.seq;
        _token := greatest(_token, e.token + 1);
        fl := penstock._land(g.group_id, e.token, e.seq, _now);
        continue when fl.seq is null;
        if penstock._conclude(
            q, g, fl, case when _counts then 'lease_end' else 'release' end, format('taken over by %s', _consumer), null,
            _now
        ) = 'ready' then
            _free := _free || e.seq;
        end if;
    end loop;
    _wanted := array(
        select (penstock._locate(q, one.id)).seq from unnest(_ids) with ordinality as one (id, place) order by one.place
    );
    if _force then
        foreach _seq in array _wanted loop
            continue when _seq is null or _seq = any (_seen);
            _seen := _seen || _seq;
            if penstock._insist(q, g, _seq, _now) then
                _free := _free || _seq;
            end if;
        end loop;
    end if;
    for _seq in select one from unnest(_free) as one order by array_position(_wanted, one) loop
        select * into t from penstock.tracked where group_id = g.group_id and seq = _seq for update;
        return next penstock._take_retry(q, t, _consumer, _lease_seconds, _token, _now);
    end loop;
    row_.content_type := _group;
    row_.created_at := case when cardinality(_free) > 0 then _token else 0 end;
    return next row_;
end
$$;

-- What is known about a message in a group, for explaining why it does not run.
create or replace function penstock.situation(_queue text, _id uuid, _group text) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    g penstock.reader;
    place record;
    last record;
    m penstock.log;
    fl penstock.flight;
begin
    place := penstock._place_of(q, _id);
    if place.seq is null then
        return (
            select jsonb_build_object(
                'is_held', true, 'available_at', h.available_at, 'waiting', h.waiting, 'batch', b.name
            )
            from penstock.held as h left join penstock.batch as b using (batch_id) where h.held_id = place.held_id
        );
    end if;
    select * into g from penstock.reader where queue_id = q.queue_id and name = _group;
    if g.group_id is null or g.stream_mark is not null then
        return jsonb_build_object('is_stream', g.group_id is not null);
    end if;
    fl := penstock._message(q, place.seq);
    select * into m from penstock.log where seq = place.seq;
    select * into last from penstock._last_entry(q.queue_id, g.group_id, fl.lane_id, place.seq);
    return jsonb_build_object(
        'seq', place.seq, 'state', last.state, 'reason', last.reason,
        'is_dead', exists (
            select 1 from penstock.dead_letter where group_id = g.group_id and seq = place.seq
        ),
        'tracked', (
            select jsonb_build_object(
                'state', t.state, 'attempt', t.attempt, 'until_at', t.until_at, 'consumer', t.consumer, 'reason', t.reason
            )
            from penstock.tracked as t where t.group_id = g.group_id and t.seq = place.seq
        ),
        'lease', (
            select jsonb_build_object('consumer', e.consumer, 'ends_at', e.ends_at)
            from penstock.lease as e where e.group_id = g.group_id and e.positions @> place.seq limit 1
        ),
        'is_read', penstock._is_read(
            penstock._cursor(g.group_id, fl.lane_id), m.tx, m.seq, q.trimmed_position
        ),
        'lag', penstock._lag(q, g.group_id),
        'consumers', (select count(*) from penstock.consumer where group_id = g.group_id),
        'is_blocked', q.ordered and exists (select penstock._busy_shards(g.group_id)),
        'paused', q.paused
    );
end
$$;
