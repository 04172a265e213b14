-- Flaws: what faults left behind in a store, found for `penstock doctor` and mended by `penstock repair`.

-- Messages that a group's cursor has passed although they were never handed out in it, and neither ended, nor were passed by
-- a seek or trimmed: nobody would ever receive them.
create or replace function penstock._lost(q penstock.queue, g penstock.reader, n penstock.lane) returns bigint[]
language plpgsql stable as $$
declare
    c penstock.claim := penstock._cursor(g.group_id, n.lane_id);
    _sought bigint;
    _told int8multirange;
begin
    if c.number = 0 then
        return '{}';
    end if;
    select max(k.above) into _sought from penstock.claim as k where k.group_id = g.group_id and k.lane_id = n.lane_id;
    select range_agg(t.run) into _told from (
        select unnest(penstock._all(k.first, k.last, k.positions)) as run from penstock.claim as k
        where k.group_id = g.group_id and k.lane_id = n.lane_id and k.n > 0 and k.last > q.trimmed_position
        union all
        select unnest(penstock._all(s.first, s.last, s.positions)) from penstock.step as s
        where s.queue_id = q.queue_id and (s.group_id is null or s.group_id = g.group_id) and s.last > q.trimmed_position
    ) as t;
    return array(
        select m.seq from penstock.log as m
        where m.lane_id = n.lane_id and m.seq > greatest(q.trimmed_position, _sought)
            and penstock._is_read(c, m.tx, m.seq, q.trimmed_position)
            and not m.seq <@ coalesce(_told, '{}')
            and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = m.seq)
            and not exists (select 1 from penstock.tracked as t where t.group_id = g.group_id and t.seq = m.seq)
        order by m.seq
    );
end
$$;

-- Such messages by queue and group.
create or replace function penstock.lost_messages() returns table (queue text, "group" text, n bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
    select q.name, g.name, sum(cardinality(lost.seqs))::bigint
    from penstock.queue as q
    join penstock.reader as g on g.queue_id = q.queue_id and g.stream_mark is null
    join penstock.lane as l on l.queue_id = q.queue_id and l.priority >= 0
    cross join lateral penstock._lost(q, g, l) as lost (seqs)
    where lost.seqs <> '{}'
    group by q.name, g.name
    order by q.name, g.name
$$;

-- passed by mistake -> ready in that group, before all that is new; counts them.
create or replace function penstock.recover_lost(_queue text, _group text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    q penstock.queue;
    g penstock.reader;
    n penstock.lane;
    m penstock.log;
    fl penstock.flight;
    _now bigint := penstock.now_us();
    _count bigint := 0;
begin
    select * into strict q from penstock.queue where name = _queue;
    q := penstock._hold_still(q);
    select * into strict g from penstock.reader where queue_id = q.queue_id and name = _group;
    for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 order by lane_id loop
        for m in select l.* from penstock.log as l where l.seq = any (penstock._lost(q, g, n)) order by l.seq loop
            fl := penstock._as_flight(m, n.priority, 0, null);
            fl.attempt := 0;
            perform penstock._record(
                q.queue_id, g.group_id, 'seek', 'ready', m.seq, 'system', 'it was passed by mistake', 0, null, _now
            );
            perform penstock._track(g.group_id, fl, 'ready', 0, _now, null);
            _count := _count + 1;
        end loop;
    end loop;
    perform penstock._wake(q.queue_id);
    return _count;
end
$$;
