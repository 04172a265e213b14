-- Windows: the rows between two marks, which is how streams read.

-- Whether some rows beyond a cursor are past retention.
create or replace function penstock._is_past_retention(q penstock.queue, _table text, c penstock.cursor) returns boolean
language sql stable as $$
    select case when _table = 'messages' then
        q.trimmed_tx is not null and not penstock._has_passed(
            c, q.trimmed_tx, coalesce((select max(t.number) from unnest(q.trimmed_rows) as t), q.trimmed_position)
        )
    else
        q.trail_mark is not null and not (
            penstock._is_mark_behind(penstock._mark_as_cursor(q.trail_mark), c)
            or penstock._contains_snapshot(c.prev, (penstock._mark_as_cursor(q.trail_mark)).snap)
        )
    end
$$;

-- Refuse a window that begins before retention, or beyond the end.
create or replace function penstock._check_window(q penstock.queue, _table text, _start text, _end text) returns void
language plpgsql stable as $$
begin
    if _start = _end then
        return;
    end if;
    perform penstock._check_mark(q, _table, _start);
    perform penstock._check_mark(q, _table, _end);
    if penstock._is_past_retention(q, _table, penstock._mark_as_cursor(_start)) then
        raise exception using errcode = 'PN206', message = format(
            'some of the %s of queue %s after %s are past retention; what is left begins after %s', _table,
            penstock._quote_value(q.name), _start, penstock.earliest(q.name, _table)
        );
    end if;
end
$$;

-- A statement that selects the messages of a queue between two marks, after a place and not beyond another: each lane
-- is a branch of its own, read in index order, so that nothing is sorted.
create or replace function penstock._messages_between(
    q penstock.queue, _start text, _end text, _after_tx xid8 default '0', _after_position bigint default 0,
    _upto_tx xid8 default '9223372036854775807', _upto_position bigint default 9223372036854775807
) returns text
language sql stable as $$
    select penstock._messages_between_places(
        q, _start, _end, format('%L::xid8, %s', later.tx, later.position), format('%L::xid8, %s', _after_tx, _after_position),
        format('%L::xid8, %s', final.tx, final.position)
    )
    from penstock._window_start(_start, _after_tx, _after_position) as later
    cross join penstock._window_end(_end, _upto_tx, _upto_position) as final
$$;

-- The place after which all rows lie that were sent after the start of a window and after a place, except those of
-- transactions that were open at the start.
create or replace function penstock._window_start(
    _start text, _after_tx xid8, _after_position bigint, out tx xid8, out "position" bigint
)
language sql immutable as $$
    select place.tx, place.position
    from penstock._rows_beyond(penstock._mark_as_cursor(_start)) as b
    cross join lateral (values (b.tx, b.position), (_after_tx, _after_position)) as place (tx, position)
    order by place.tx desc, place.position desc limit 1
$$;

-- The place up to which all rows lie that were sent before the end of a window, and not beyond a place. A window that
-- was cut ends there: without this every row behind it would be read and rejected.
create or replace function penstock._window_end(_end text, _upto_tx xid8, _upto_position bigint, out tx xid8, out "position" bigint)
language sql immutable as $$
    select place.tx, place.position
    from penstock._mark_as_cursor(_end) as e
    cross join lateral (
        select _upto_tx, _upto_position
        union all
        select b.tx, b.position from penstock._rows_beyond(e) as b where not e.used_up and e.above = 0
    ) as place (tx, position)
    order by place.tx, place.position limit 1
$$;

-- The statement of _messages_between with places as text, so that they can be columns of another table: _later as of
-- _window_start, and _after for transactions that were open at the start. A branch has one lower bound, because the
-- index would use only one of several.
create or replace function penstock._messages_between_places(
    q penstock.queue, _start text, _end text, _later text, _after text, _upto text
) returns text
language sql stable as $$
    select coalesce(string_agg(format(
        'select l.* from penstock.log as l where l.lane_id = %s and l.tx < %L::xid8 and (l.tx, l.position) <= (%s) and %s',
        n.lane_id, pg_snapshot_xmax(e.snap), _upto, branch.condition
    ), ' union all ' order by n.lane_id, branch.condition), 'select l.* from penstock.log as l where false')
    from penstock._mark_as_cursor(_start) as s
    cross join penstock._mark_as_cursor(_end) as e
    cross join lateral penstock._rows_beyond(s) as b
    cross join lateral (
        -- Conditions in addition to the index bounds.
        select format('not penstock._is_behind_cursor(penstock._mark_as_cursor(%L), l.tx, l.position, 0)', _start) as after_start,
            case when e.used_up and pg_snapshot_xmin(e.snap) = pg_snapshot_xmax(e.snap) then 'true'
                else format('penstock._is_behind_cursor(penstock._mark_as_cursor(%L), l.tx, l.position, 0)', _end) end as before_end
    ) as filter
    cross join lateral (
        select format(
            '(l.tx, l.position) > (%s) and %s and %s', _later,
            case when s.used_up or s.above = 0 then 'true' else filter.after_start end, filter.before_end
        )
        union all
        select format(
            'l.tx = any (%L::xid8[]) and (l.tx, l.position) > (%s) and %s and %s', b.earlier, _after, filter.after_start,
            filter.before_end
        )
        where cardinality(b.earlier) > 0
    ) as branch (condition)
    join penstock.lane as n on n.queue_id = q.queue_id and n.priority >= 0
$$;

-- Where the rows lie that a cursor has not passed: after a place, and in earlier transactions that were open then.
-- Passed rows may be among them.
create or replace function penstock._rows_beyond(c penstock.cursor, out tx xid8, out "position" bigint, out earlier xid8[])
language sql immutable as $$
    select place.tx, place.position, array(
        select x from (
            select x from pg_snapshot_xip(c.snap) as x
            union
            select x from pg_snapshot_xip(c.prev) as x where not c.used_up
        ) as open
        where x <= place.tx order by x
    )
    from (
        select c.at_tx as tx, c.at_position as position where not c.used_up
        union all
        select ((pg_snapshot_xmax(case when c.used_up then c.snap else c.prev end)::text::bigint - 1)::text)::xid8,
            9223372036854775807
    ) as place
    order by place.tx desc, place.position desc limit 1
$$;

-- Audit entries of a queue between two marks, one row for each set of positions.
create or replace function penstock._audit_between(
    q penstock.queue, s penstock.cursor, e penstock.cursor, _ended boolean
) returns table (
    entry bigint, lane_id integer, first bigint, last bigint, n integer, positions int8multirange, at bigint, event text,
    state text, by text, group_id integer, reason text, attempt integer, token bigint
)
language sql stable rows 1000 as $$
    select one.* from (
        select t.entry, null::integer as lane_id, t.first, t.last, t.n, t.positions, t.at, t.event, t.state, t.by, t.group_id,
            t.reason, t.attempt, t.token
        from penstock.audit as t
        where t.queue_id = q.queue_id and t.first > 0
            and t.tx >= case when s.used_up then pg_snapshot_xmin(s.snap) else pg_snapshot_xmin(s.prev) end
            and not penstock._is_behind_cursor(s, t.tx, t.entry, 0) and penstock._is_behind_cursor(e, t.tx, t.entry, 0)
            and (
                not _ended
                or t.state in ('succeeded', 'rejected', 'failed', 'lease_expired', 'expired', 'cancelled')
            )
        union all
        select t.entry, t.lane_id, t.first, t.last, t.n, t.positions, t.at, 'receive', 'leased', t.consumer, t.group_id,
            null, 1, t.token
        from penstock.lane as l join penstock.cursor as t using (lane_id)
        where l.queue_id = q.queue_id and t.n > 0 and not _ended
            and t.tx >= case when s.used_up then pg_snapshot_xmin(s.snap) else pg_snapshot_xmin(s.prev) end
            and not penstock._is_behind_cursor(s, t.tx, t.entry, 0) and penstock._is_behind_cursor(e, t.tx, t.entry, 0)
    ) as one
$$;

-- Move a stream group forward.
create or replace function penstock.advance(_queue text, _group text, _mark text, _table text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
    g penstock.group := penstock._ensure_group(q, penstock._check_name('group', _group));
    c penstock.cursor := penstock._mark_as_cursor(_mark);
    _followed text := case when _table = 'messages' then 'messages' else 'audit' end;
begin
    if _table = 'dead_letters' then
        raise exception using errcode = 'PN100',
            message = 'dead_letters are read as they are: a group has no place in them';
    end if;
    perform penstock._check_mark(q, _table, _mark);
    if g.stream_mark is null then
        if g.name is not distinct from q.primary_group
            or exists (select 1 from penstock.cursor where group_id = g.group_id)
            or exists (select 1 from penstock.tracked where group_id = g.group_id) then
            raise exception using errcode = 'PN204', message = format(
                'group %s of queue %s is received with leases: stream with another group', penstock._quote_value(g.name),
                penstock._quote_value(q.name)
            );
        end if;
    elsif g.stream_table <> _followed then
        raise exception using errcode = 'PN204', message = format(
            'group %s of queue %s streams %s: stream %s with another group', penstock._quote_value(g.name),
            penstock._quote_value(q.name), g.stream_table, _table
        );
    elsif penstock._is_mark_behind(c, penstock._mark_as_cursor(g.stream_mark)) then
        _mark := g.stream_mark;
    end if;
    update penstock.group set stream_mark = _mark, stream_table = _followed, used_at = penstock.now_us()
    where group_id = g.group_id;
end
$$;

-- How many messages have ended beyond a mark. Entries of removed messages remain, so where messages were removed they
-- are looked up.
create or replace function penstock._count_ended(q penstock.queue, _mark text) returns bigint
language sql stable as $$
    select coalesce(sum(case when removed.any then (
        select count(*) from unnest(penstock._expand_positions(h.first, h.last, h.positions)) as one (run)
        join penstock.log as m on m.position >= lower(one.run) and m.position < upper(one.run)
        join penstock.lane as n on n.lane_id = m.lane_id and n.queue_id = q.queue_id
    ) else h.n end), 0)::bigint
    from penstock._audit_between(
        q, penstock._mark_as_cursor(_mark), penstock._mark_as_cursor(penstock._make_mark(pg_current_snapshot())), true
    ) as h
    cross join (select exists (select 1 from penstock.removal as r where r.queue_id = q.queue_id)) as removed ("any")
$$;

-- How many messages of a queue lie beyond a mark.
create or replace function penstock._count_beyond(q penstock.queue, _mark text) returns bigint
language sql stable as $$
    select coalesce(sum(
        (
            select count(*) from penstock.log as m
            where m.lane_id = n.lane_id and m.tx >= pg_snapshot_xmax(c.snap) and m.position > q.trimmed_position
        ) + (
            select count(*) from pg_snapshot_xip(c.snap) as o (x)
            join penstock.log as m on m.lane_id = n.lane_id and m.tx = o.x and m.position > q.trimmed_position
        ) + case when c.used_up then 0 else (
            select count(*) from penstock._window_messages(n.lane_id, c, q.trimmed_position)
        ) end
    ), 0)::bigint
    from penstock._mark_as_cursor(_mark) as c
    cross join penstock.lane as n
    where n.queue_id = q.queue_id and n.priority >= 0
$$;
