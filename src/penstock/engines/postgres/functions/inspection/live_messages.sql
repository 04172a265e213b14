-- Live messages by state, and the members of a batch: pages that read no payload and follow an index. A page begins
-- after a place, the sort key of the last row of the page before.

-- Messages that wait for a time, by that time: delayed ones (kind 0) and retries (1).
create or replace function penstock.due_messages(
    _queue text, _group text, _limit bigint, _due_at bigint, _kind integer, _number bigint
) returns table (
    due_at bigint, kind integer, number bigint, created_at bigint, id text, attempt integer, reason text, batch text
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(_queue);
    _group_id integer := (select group_id from penstock.group where queue_id = q.queue_id and name = _group);
begin
    return query
    select * from (
        (
            select h.available_at, 0, h.held_id, h.created_at, h.id::text, 0, null::text,
                (select b.name from penstock.batch as b where b.batch_id = h.batch_id)
            from penstock.held as h
            where h.queue_id = q.queue_id and not h.waiting
                and (h.available_at, h.held_id) > (_due_at, case when _kind = 0 then _number else 9223372036854775807 end)
            order by h.available_at, h.held_id limit _limit
        )
        union all
        (
            select t.until_at, 1, t.position, t.created_at, coalesce(t.id, penstock.made_id(t.created_at, t.position))::text, t.attempt,
                t.reason, null
            from penstock.tracked as t
            where t.group_id = _group_id and t.state = 'held'
                and (t.until_at, t.position) > (_due_at, case when _kind = 1 then _number else 0 end)
            order by t.until_at, t.position limit _limit
        )
    ) as one
    order by 1, 2, 3 limit _limit;
end
$$;

-- Messages that wait for the start of their batch, batch by batch.
create or replace function penstock.waiting_messages(_queue text, _limit bigint, _batch_id bigint, _number bigint)
returns table (batch_id bigint, number bigint, created_at bigint, id text, batch text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(_queue);
    b penstock.batch;
    _left bigint := _limit;
    _found bigint;
begin
    for b in
        select * from penstock.batch as u
        where u.state = 'open' and u.batch_id >= _batch_id and (
            u.queue_id = q.queue_id
            or u.batch_id in (select o.batch_id from penstock.batch_queue as o where o.queue_id = q.queue_id)
        )
        order by u.batch_id
    loop
        return query
        select h.batch_id, h.held_id, h.created_at, h.id::text, b.name from penstock.held as h
        where h.batch_id = b.batch_id and h.queue_id = q.queue_id and h.waiting
            and h.held_id > case when b.batch_id = _batch_id then _number else 0 end
        order by h.held_id limit _left;
        get diagnostics _found = row_count;
        _left := _left - _found;
        exit when _left <= 0;
    end loop;
end
$$;

-- Messages of a lane after a cursor and a place, in transaction order. Each part of the cursor's window, and what lies
-- beyond it, is read along the index.
create or replace function penstock._unread_after(
    _lane_id integer, c penstock.cursor, _trimmed bigint, _tx xid8, _position bigint, _limit bigint
) returns setof penstock.log
language sql stable rows 100
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select * from (
        (
            select m.* from unnest(array(
                select x from pg_snapshot_xip(c.prev) as x
                where not c.used_up and x >= greatest(c.at_tx, _tx) and pg_visible_in_snapshot(x, c.snap) order by x
            )) as o (x)
            cross join lateral (
                select * from penstock.log as m
                where m.lane_id = _lane_id and m.tx = o.x and (m.tx, m.position) > (c.at_tx, c.at_position)
                    and (m.tx, m.position) > (_tx, _position) and m.position > greatest(c.above, _trimmed)
                order by m.tx, m.position limit _limit
            ) as m
            limit _limit
        )
        union all
        (
            select m.* from penstock.log as m
            where not c.used_up and m.lane_id = _lane_id and m.tx >= pg_snapshot_xmax(c.prev)
                and (m.tx, m.position) > (greatest(c.at_tx, _tx), 0)
                and (m.tx, m.position) > (c.at_tx, c.at_position) and (m.tx, m.position) > (_tx, _position)
                and m.tx < pg_snapshot_xmax(c.snap) and pg_visible_in_snapshot(m.tx, c.snap)
                and m.position > greatest(c.above, _trimmed)
            order by m.tx, m.position limit _limit
        )
        union all
        (
            select m.* from unnest(array(
                select x from pg_snapshot_xip(c.snap) as x where x >= _tx order by x
            )) as o (x)
            cross join lateral (
                select * from penstock.log as m
                where m.lane_id = _lane_id and m.tx = o.x and (m.tx, m.position) > (_tx, _position) and m.position > _trimmed
                order by m.tx, m.position limit _limit
            ) as m
            limit _limit
        )
        union all
        (
            select m.* from penstock.log as m
            where m.lane_id = _lane_id and (m.tx, m.position) > (greatest(_tx, pg_snapshot_xmax(c.snap)), case
                    when _tx >= pg_snapshot_xmax(c.snap) then _position else 0 end)
                and m.position > _trimmed
            order by m.tx, m.position limit _limit
        )
    ) as m
    order by m.tx, m.position limit _limit
$$;

-- Messages that can be received, best priority first, due retries (kind 0) before unread ones (1). is_ready is false
-- for unread ones that a receive would skip.
create or replace function penstock.ready_messages(
    _queue text, _group text, _limit bigint, _priority integer, _kind integer, _tx bigint, _position bigint
) returns table (
    priority integer, kind integer, tx bigint, "position" bigint, created_at bigint, id text, attempt integer, reason text,
    is_ready boolean
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(_queue);
    _group_id integer := coalesce((select group_id from penstock.group where queue_id = q.queue_id and name = _group), -1);
    _now bigint := penstock.now_us();
begin
    return query
    select * from (
        (
            select t.priority, 0, 0::bigint, t.position, t.created_at,
                coalesce(t.id, penstock.made_id(t.created_at, t.position))::text, t.attempt, t.reason, true
            from penstock.tracked as t
            where t.group_id = _group_id and t.state = 'ready'
                and (t.priority, t.position) > (_priority, case when _kind = 0 then _position else 9223372036854775807 end)
            order by t.priority, t.position limit _limit
        )
        union all
        (
            select n.priority, 1, m.tx::text::bigint, m.position, m.created_at,
                coalesce(m.id, penstock.made_id(m.created_at, m.position))::text, 0, null,
                (m.expires_at is null or m.expires_at > _now)
                and (q.delivery = 'at_least_once' or m.deadline_at is null or m.deadline_at > _now)
                and not exists (select 1 from penstock.skip as s where s.group_id = _group_id and s.position = m.position)
                and not exists (
                    select 1 from penstock.batch as b
                    where b.batch_id = m.batch_id and b.state in ('cancelling', 'cancelled')
                )
            from penstock.lane as n
            cross join lateral penstock._unread_after(
                n.lane_id, penstock._get_cursor(_group_id, n.lane_id), q.trimmed_position,
                case when n.priority = _priority and _kind = 1 then _tx::text::xid8 else '0' end,
                case when n.priority = _priority and _kind = 1 then _position else 0 end, _limit
            ) as m
            where n.queue_id = q.queue_id and n.priority >= _priority
        )
    ) as one
    order by 1, 2, 3, 4 limit _limit;
end
$$;

-- Members of a batch: those that have reached the log (held is 0) by position, then held ones (1).
create or replace function penstock.batch_members(
    _queue text, _name text, _after bigint, _limit bigint, _held integer, _number bigint
) returns table (held integer, number bigint, created_at bigint, id text, queue_name text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(_queue);
    b penstock.batch := penstock._get_batch(q, _name, _after);
begin
    return query
    select * from (
        (
            select 0, m.position, m.created_at, coalesce(m.id, penstock.made_id(m.created_at, m.position))::text, o.name
            from penstock.log as m join penstock.lane as n using (lane_id) join penstock.queue as o using (queue_id)
            where _held = 0 and m.batch_id = b.batch_id and m.position > _number and m.position > o.trimmed_position
            order by m.position limit _limit
        )
        union all
        (
            select 1, h.held_id, h.created_at, h.id::text, o.name
            from penstock.held as h join penstock.queue as o using (queue_id)
            where h.batch_id = b.batch_id and h.held_id > case when _held = 1 then _number else 0 end
            order by h.held_id limit _limit
        )
    ) as one
    order by 1, 2 limit _limit;
end
$$;
