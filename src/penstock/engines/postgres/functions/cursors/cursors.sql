-- Cursors: how far a group has read a lane, and the unread messages after it.

-- The cursor of a group in a lane: its newest row. The given cursor is returned when there is none, so that one that
-- was only moved in memory is not lost.
create or replace function penstock._get_cursor(
    _group_id integer, _lane_id integer, _otherwise penstock.cursor default null
) returns penstock.cursor
language plpgsql stable as $$
declare
    c penstock.cursor;
begin
    select * into c from penstock.cursor
    where group_id = _group_id and lane_id = _lane_id
    order by number desc limit 1;
    if not found then
        c := _otherwise;
        if c is null then
            c.number := 0;
            c.prev := '1:1:';
            c.snap := '1:1:';
            c.at_tx := '0';
            c.at_position := 0;
            c.used_up := true;
            c.above := 0;
            c.passed := 0;
            c.token := 0;
            c.checked_at := 0;
        end if;
    end if;
    return c;
end
$$;

-- Messages of a lane after a cursor, in order, at most _limit of each part. The plan must use the index: without
-- statistics the planner would read and sort the whole lane for the first message.
create or replace function penstock._unread_messages(
    _lane_id integer, c penstock.cursor, _trimmed bigint, _limit bigint
) returns setof penstock.log
language plpgsql stable rows 100
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
begin
    -- The rest of its window, and later messages.
    if not c.used_up then
        return query select * from penstock._window_messages(_lane_id, c, _trimmed) limit _limit;
    end if;
    return query
    select m.* from unnest(array(select x from pg_snapshot_xip(c.snap) as x order by x)) as o (x)
    cross join lateral (
        select * from penstock.log as m
        where m.lane_id = _lane_id and m.tx = o.x and m.position > _trimmed
        order by m.tx, m.position
        limit _limit
    ) as m;
    return query
    select m.* from penstock.log as m
    where m.lane_id = _lane_id and m.tx >= pg_snapshot_xmax(c.snap) and m.position > _trimmed
    order by m.tx, m.position
    limit _limit;
end
$$;

-- Whether a message lies behind a cursor.
create or replace function penstock._is_behind_cursor(c penstock.cursor, _tx xid8, _position bigint, _trimmed bigint) returns boolean
language sql immutable as $$
    select _position <= _trimmed or pg_visible_in_snapshot(_tx, c.prev)
        or (
            pg_visible_in_snapshot(_tx, c.snap)
            and (c.used_up or (_tx, _position) <= (c.at_tx, c.at_position) or _position <= c.above)
        )
$$;

-- Whether a group has unread messages in a lane. Messages that must be skipped may count.
create or replace function penstock._has_unread(_group_id integer, _lane_id integer, _trimmed bigint) returns boolean
language plpgsql stable as $$
declare
    c penstock.cursor := penstock._get_cursor(_group_id, _lane_id);
    _above bigint := greatest(c.above, _trimmed);
begin
    if exists (
        select 1 from penstock.log as m
        where m.lane_id = _lane_id and m.tx >= pg_snapshot_xmax(c.snap) and m.position > _trimmed
    ) then
        return true;
    end if;
    if not c.used_up and exists (
        select 1 from penstock.log as m
        where m.lane_id = _lane_id
            and (m.tx, m.position) > (
                greatest(c.at_tx, pg_snapshot_xmax(c.prev)),
                case when c.at_tx >= pg_snapshot_xmax(c.prev) then c.at_position else 0 end
            )
            and m.tx < pg_snapshot_xmax(c.snap) and pg_visible_in_snapshot(m.tx, c.snap) and m.position > _above
    ) then
        return true;
    end if;
    return exists (
        select 1 from pg_snapshot_xip(c.snap) as o (x)
        where exists (select 1 from penstock.log as m where m.lane_id = _lane_id and m.tx = o.x and m.position > _trimmed)
    ) or not c.used_up and exists (
        select 1 from pg_snapshot_xip(c.prev) as o (x)
        where x >= c.at_tx and pg_visible_in_snapshot(x, c.snap) and exists (
            select 1 from penstock.log as m
            where m.lane_id = _lane_id and m.tx = o.x and (m.tx, m.position) > (c.at_tx, c.at_position) and m.position > _above
        )
    );
end
$$;

-- The rest of a cursor's window.
create or replace function penstock._window_messages(_lane_id integer, c penstock.cursor, _trimmed bigint)
returns setof penstock.log
language sql stable rows 100 as $$
    select * from (
        (
            select m.* from unnest(array(
                select x from pg_snapshot_xip(c.prev) as x
                where x >= c.at_tx and pg_visible_in_snapshot(x, c.snap) order by x
            )) as o (x)
            cross join lateral (
                select * from penstock.log as m
                where m.lane_id = _lane_id and m.tx = o.x and (m.tx, m.position) > (c.at_tx, c.at_position)
                    and m.position > greatest(c.above, _trimmed)
                order by m.tx, m.position
            ) as m
        )
        union all
        (
            select m.* from penstock.log as m
            where m.lane_id = _lane_id
                and (m.tx, m.position) > (
                    greatest(c.at_tx, pg_snapshot_xmax(c.prev)),
                    case when c.at_tx >= pg_snapshot_xmax(c.prev) then c.at_position else 0 end
                )
                and m.tx < pg_snapshot_xmax(c.snap) and pg_visible_in_snapshot(m.tx, c.snap)
                and m.position > greatest(c.above, _trimmed)
            order by m.tx, m.position
        )
    ) as m
$$;

-- Move a cursor, with a lease on the given positions.
create or replace function penstock._move_cursor(
    _group_id integer, _lane_id integer, c penstock.cursor, _passed bigint, _positions bigint[], _consumer text,
    _token bigint, _ends_at bigint, _now bigint
) returns void
language plpgsql as $$
declare
    _first bigint;
    _last bigint;
    _sum bigint;
    _n integer := cardinality(_positions);
begin
    select min(one), max(one), sum(one)::bigint into _first, _last, _sum from unnest(_positions) as one;
    insert into penstock.cursor (
        entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_position, used_up, above, passed, at, token, checked_at,
        first, last, n, consumer, positions
    ) values (
        nextval('penstock.entry'), _group_id, _lane_id, c.number + 1, pg_current_xact_id(), c.prev, c.snap, c.at_tx,
        c.at_position, c.used_up, c.above, c.passed + _passed, penstock.now_us(), _token, c.checked_at,
        coalesce(_first, c.at_position), coalesce(_last, c.at_position), _n, _consumer, penstock._compact_positions(_positions, _first, _last)
    );
    if _n > 0 then
        insert into penstock.lease as e (
            group_id, token, lane_id, ends_at, leased_at, first, last, n, checksum, consumer, positions
        ) values (
            _group_id, _token, _lane_id, _ends_at, _now, _first, _last, _n, _sum, _consumer,
            penstock._expand_positions(_first, _last, penstock._compact_positions(_positions, _first, _last))
        )
        on conflict (group_id, token, lane_id) do update
        set first = least(e.first, excluded.first), last = greatest(e.last, excluded.last), n = e.n + excluded.n,
            checksum = e.checksum + excluded.checksum, positions = e.positions + excluded.positions;
    end if;
end
$$;
