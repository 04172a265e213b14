-- Sizes of messages without reading them, for readers that fetch in pieces.

-- Messages of the log between two positions that have not expired: position, time and size of each.
create or replace function penstock.places(
    _queue text, _after bigint, _upto bigint, _limit bigint, _backwards boolean
) returns table ("position" bigint, created_at bigint, size integer)
language sql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select one.position, l.created_at, octet_length(l.payload)
    from unnest(penstock._browse_positions(_queue, _after, _upto, _limit, _backwards)) with ordinality as one (position, place)
    cross join lateral (
        select m.created_at, m.expires_at, m.payload from penstock.log as m where m.position = one.position limit 1
    ) as l
    where l.expires_at is null or l.expires_at > penstock.now_us()
    order by one.place
$$;

-- How many of the messages that a group would receive next fit into _size bytes: at most _limit, and at least one. An
-- estimate while others receive too. Retries come first here, whatever their priority.
create or replace function penstock.fitting(_queue text, _group text, _limit integer, _size bigint) returns integer
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    q penstock.queue;
    _group_id integer;
    _now bigint := penstock.now_us();
    _bytes bigint := 0;
    _count integer := 0;
    one record;
begin
    select * into q from penstock.queue where name = _queue;
    select group_id into _group_id from penstock.group
    where queue_id = q.queue_id and name = coalesce(_group, penstock._default_group(q));
    _group_id := coalesce(_group_id, -1);
    for one in
        select octet_length(t.payload) as size from penstock.tracked as t
        where t.group_id = _group_id and t.state = 'ready'
        union all
        select octet_length(t.payload) from penstock.tracked as t
        where t.group_id = _group_id and t.state = 'held' and t.until_at <= _now
        union all
        select octet_length(t.payload) from penstock.tracked as t
        where t.group_id = _group_id and t.state = 'leased' and t.until_at <= _now
        union all
        select octet_length(m.payload) from penstock.lease as e
        cross join lateral unnest(penstock._list_positions(e.positions)) as taken (position)
        cross join lateral (select l.payload from penstock.log as l where l.position = taken.position limit 1) as m
        where e.group_id = _group_id and e.ends_at <= _now
        union all
        select octet_length(h.payload) from penstock.held as h
        where h.queue_id = q.queue_id and not h.waiting and h.available_at <= _now
        union all
        select unread.size from (
            select l.lane_id from penstock.lane as l
            where l.queue_id = q.queue_id and l.priority >= 0 order by l.priority, l.shard
        ) as n
        cross join lateral (
            select octet_length(m.payload) as size from penstock._unread_messages(
                n.lane_id, penstock._get_cursor(_group_id, n.lane_id), q.trimmed_position, _limit
            ) as m
        ) as unread
    loop
        _bytes := _bytes + one.size;
        exit when _count > 0 and _bytes > _size;
        _count := _count + 1;
        exit when _count = _limit;
    end loop;
    return case when _bytes > _size then _count else _limit end;
end
$$;
