-- Lost messages: what faults left behind, found by `penstock doctor` and repaired by `penstock repair`.

-- Messages that a group's cursor has passed although no row says that they were leased in it, have ended, or were passed
-- by a seek or trimmed. With `_is_certain` those that nobody received: all receives since are recorded. Otherwise those
-- whose receives may be among missing rows, which an earlier version deleted too early.
create or replace function penstock._find_lost(
    q penstock.queue, g penstock.group, n penstock.lane, _is_certain boolean
) returns bigint[]
language plpgsql stable as $$
declare
    c penstock.cursor := penstock._get_cursor(g.group_id, n.lane_id);
    _oldest penstock.cursor;  -- no row is missing after this one
    _sought bigint;
    _told int8multirange;
begin
    if c.number = 0 then
        return '{}';
    end if;
    select k.* into _oldest from penstock.cursor as k
    where k.group_id = g.group_id and k.lane_id = n.lane_id and not exists (
        select 1 from penstock.cursor as before
        where before.group_id = k.group_id and before.lane_id = k.lane_id and before.number = k.number - 1
    )
    order by k.number desc limit 1;
    select max(k.above) into _sought from penstock.cursor as k where k.group_id = g.group_id and k.lane_id = n.lane_id;
    select range_agg(t.run) into _told from (
        select unnest(penstock._expand_positions(k.first, k.last, k.positions)) as run from penstock.cursor as k
        where k.group_id = g.group_id and k.lane_id = n.lane_id and k.n > 0 and k.last > q.trimmed_position
        union all
        select unnest(penstock._expand_positions(s.first, s.last, s.positions)) from penstock.audit as s
        where s.queue_id = q.queue_id and (s.group_id is null or s.group_id = g.group_id) and s.last > q.trimmed_position
    ) as t;
    return array(
        select m.position from penstock.log as m
        where m.lane_id = n.lane_id and m.position > greatest(q.trimmed_position, _sought)
            and penstock._is_behind_cursor(c, m.tx, m.position, q.trimmed_position)
            and _is_certain = (
                _oldest.number = 1 or not penstock._is_behind_cursor(_oldest, m.tx, m.position, q.trimmed_position)
            )
            and not m.position <@ coalesce(_told, '{}')
            and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.position = m.position)
            and not exists (select 1 from penstock.tracked as t where t.group_id = g.group_id and t.position = m.position)
        order by m.position
    );
end
$$;

-- Lost messages of all queues and groups: of those that nobody received, or of the others.
create or replace function penstock._count_lost(_is_certain boolean) returns table (queue text, "group" text, n bigint)
language sql stable as $$
    select q.name, g.name, sum(cardinality(lost.positions))::bigint
    from penstock.queue as q
    join penstock.group as g on g.queue_id = q.queue_id and g.stream_mark is null
    join penstock.lane as l on l.queue_id = q.queue_id and l.priority >= 0
    cross join lateral penstock._find_lost(q, g, l, _is_certain) as lost (positions)
    where lost.positions <> '{}'
    group by q.name, g.name
    order by q.name, g.name
$$;

-- Messages that nobody received and nobody would ever receive, by queue and group.
create or replace function penstock.lost_messages() returns table (queue text, "group" text, n bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
    select * from penstock._count_lost(true)
$$;

-- Messages whose receives and endings an earlier version deleted too early, by queue and group.
create or replace function penstock.lost_entries() returns table (queue text, "group" text, n bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
    select * from penstock._count_lost(false)
$$;

-- Make messages that nobody received ready in their group, before new ones. Returns how many.
create or replace function penstock.recover_lost(_queue text, _group text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    q penstock.queue;
    g penstock.group;
    n penstock.lane;
    m penstock.log;
    msg penstock.message_row;
    _now bigint := penstock.now_us();
    _count bigint := 0;
begin
    select * into strict q from penstock.queue where name = _queue;
    q := penstock._lock_queue(q);
    select * into strict g from penstock.group where queue_id = q.queue_id and name = _group;
    for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 order by lane_id loop
        for m in select l.* from penstock.log as l where l.position = any (penstock._find_lost(q, g, n, true)) order by l.position loop
            msg := penstock._log_row(m, n.priority, 0, null);
            msg.attempt := 0;
            perform penstock._record_audit(
                q.queue_id, g.group_id, 'seek', 'ready', m.position, 'system', 'it was passed by mistake', 0, null, _now
            );
            perform penstock._track_message(g.group_id, msg, 'ready', 0, _now, null);
            _count := _count + 1;
        end loop;
    end loop;
    perform penstock._wake_receivers(q.queue_id);
    return _count;
end
$$;
