-- Windows: how the pipeline reads. A mark is a cursor as text: prev/snap/tx/seq/above/used up.

-- The mark behind everything that a snapshot sees.
create or replace function penstock._mark(_snap pg_snapshot) returns text
language sql immutable as $$
    select format('%s/%s/0/0/0/t', _snap, _snap)
$$;

-- The mark behind all messages up to a position that are visible now.
create or replace function penstock._mark_above(_position bigint) returns text
language sql volatile as $$
    select format('1:1:/%s/0/0/%s/f', penstock._snapshot(), _position)
$$;

-- The mark behind all messages up to a position that is decided, whatever snapshot.
create or replace function penstock._mark_decided(_position bigint) returns text
language sql immutable as $$
    select format('1:1:/9223372036854775807:9223372036854775807:/0/0/%s/f', _position)
$$;

-- A snapshot that shows the same of what transactions up to _last have written, and says nothing about later ones: the
-- same text for as long as nothing changes.
create or replace function penstock._narrowed(_snap pg_snapshot, _last xid8) returns pg_snapshot
language sql immutable as $$
    select format(
        '%s:%s:%s', coalesce(min(x::text::bigint), _last::text::bigint + 1), _last::text::bigint + 1,
        string_agg(x::text, ',' order by x)
    )::pg_snapshot
    from pg_snapshot_xip(_snap) as x
    where x <= _last
$$;

-- The mark up to which every committed row is readable. Transactions that have just begun get a moment to end, because a
-- mark that does not name them is simpler; nobody waits for long ones.
create or replace function penstock.horizon(_queue text, _table text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    q penstock.queue;
    _snap pg_snapshot;
    _last xid8;
    _narrow pg_snapshot;
begin
    select * into q from penstock.queue where name = _queue;
    for attempt in 1..6 loop
        _snap := penstock._snapshot();
        _last := penstock._last_tx(q, _table, _snap);
        if _last is null then
            return '0';
        end if;
        _narrow := penstock._narrowed(_snap, _last);
        exit when pg_snapshot_xmin(_narrow) = pg_snapshot_xmax(_narrow);
        perform pg_sleep(0.002);
    end loop;
    return penstock._mark(_narrow);
end
$$;

-- The last transaction that has written something of a queue that a snapshot shows.
create or replace function penstock._last_tx(q penstock.queue, _table text, _snap pg_snapshot) returns xid8
language sql stable as $$
    select case when _table = 'messages' then (
        select greatest(q.trimmed_tx, q.removed_tx, (
            select last.tx from penstock.lane as n
            cross join lateral (
                select m.tx from penstock.log as m
                where m.lane_id = n.lane_id and pg_visible_in_snapshot(m.tx, _snap) order by m.tx desc limit 1
            ) as last
            where n.queue_id = q.queue_id and n.priority >= 0
            order by last.tx desc limit 1
        ))
    ) else (
        select greatest(
            (
                select ((pg_snapshot_xmax((penstock._mark_cursor(q.trail_mark)).snap)::text::bigint - 1)::text)::xid8
                where q.trail_mark is not null
            ),
            (
                select s.tx from penstock.step as s
                where s.queue_id = q.queue_id and pg_visible_in_snapshot(s.tx, _snap) order by s.tx desc limit 1
            ),
            (
                select last.tx from penstock.lane as n
                cross join lateral (
                    select c.tx from penstock.claim as c
                    where c.lane_id = n.lane_id and c.n > 0 and pg_visible_in_snapshot(c.tx, _snap)
                    order by c.tx desc limit 1
                ) as last
                where n.queue_id = q.queue_id
                order by last.tx desc limit 1
            )
        )
    ) end
$$;

-- The mark from which a table is whole.
create or replace function penstock.earliest(_queue text, _table text) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce((
        select case
            when _table <> 'messages' then q.trail_mark
            when q.log_mark is not null then q.log_mark
            when q.trimmed_position > 0 then penstock._mark_decided(q.trimmed_position)
        end
        from penstock.queue as q where q.name = _queue
    ), '0')
$$;

-- Whether a cursor has passed everything that transactions up to _tx have written, up to a position.
create or replace function penstock._has_passed(c penstock.claim, _tx xid8, _seq bigint) returns boolean
language sql immutable as $$
    select penstock._shows(c.prev, _tx) or (
        penstock._shows(c.snap, _tx)
        and (c.used_up or (c.at_tx, c.at_seq) >= (_tx, _seq) or (c.above >= _seq and _seq > 0))
    )
$$;

-- Whether a snapshot shows all transactions up to one.
create or replace function penstock._shows(_snap pg_snapshot, _tx xid8) returns boolean
language sql immutable as $$
    select _tx < pg_snapshot_xmax(_snap) and not exists (select 1 from pg_snapshot_xip(_snap) as x where x <= _tx)
$$;

-- Whether all that lies behind one mark lies behind another.
create or replace function penstock._is_behind(_one penstock.claim, _other penstock.claim) returns boolean
language sql immutable as $$
    select case
        when (_one.prev::text, _one.snap::text) = (_other.prev::text, _other.snap::text) and not _other.used_up then
            not _one.used_up and (_one.at_tx, _one.at_seq, _one.above) <= (_other.at_tx, _other.at_seq, _other.above)
        else penstock._contains(_other.prev, _one.snap)
            or (_other.used_up and penstock._contains(_other.snap, _one.snap))
    end
$$;

-- Whether a snapshot shows everything that another one shows.
create or replace function penstock._contains(_large pg_snapshot, _small pg_snapshot) returns boolean
language sql immutable as $$
    select pg_snapshot_xmax(_large) >= pg_snapshot_xmax(_small) and not exists (
        select 1 from pg_snapshot_xip(_large) as x
        where x < pg_snapshot_xmax(_small) and pg_visible_in_snapshot(x, _small)
    )
$$;

-- Refuse a window that begins before what is left, or beyond the end.
create or replace function penstock._check_window(q penstock.queue, _table text, _start text, _end text) returns void
language plpgsql stable as $$
declare
    c penstock.claim := penstock._mark_cursor(_start);
    _is_gone boolean;
begin
    if _start = _end then
        return;
    end if;
    if pg_snapshot_xmax(c.snap) > pg_snapshot_xmax(pg_current_snapshot())
        and pg_snapshot_xmax(c.snap) < '9223372036854775807' then
        raise exception using errcode = 'PN206', message = format(
            '%s of queue %s end before the window begins (%s): the store is older than what was read from it, perhaps a '
            'restored copy', _table, penstock._shown(q.name), _start
        );
    end if;
    if _table = 'messages' then
        _is_gone := q.trimmed_tx is not null and not penstock._has_passed(c, q.trimmed_tx, q.trimmed_position);
    else
        _is_gone := q.trail_mark is not null and not (
            penstock._is_behind(penstock._mark_cursor(q.trail_mark), c)
            or penstock._contains(c.prev, (penstock._mark_cursor(q.trail_mark)).snap)
        );
    end if;
    if _is_gone then
        raise exception using errcode = 'PN206', message = format(
            'some of the %s of queue %s after %s are past retention; what is left begins after %s', _table,
            penstock._shown(q.name), _start, penstock.earliest(q.name, _table)
        );
    end if;
end
$$;

-- The messages of a queue between two marks, in no order.
create or replace function penstock._between(q penstock.queue, s penstock.claim, e penstock.claim)
returns setof penstock.log
language sql stable rows 10000 as $$
    select m.* from penstock.lane as n
    cross join lateral (
        select w.* from penstock._window(n.lane_id, s, 0) as w where not s.used_up
        union all
        select l.* from pg_snapshot_xip(s.snap) as o (x)
        join penstock.log as l on l.lane_id = n.lane_id and l.tx = o.x
        union all
        select l.* from penstock.log as l
        where l.lane_id = n.lane_id and l.tx >= pg_snapshot_xmax(s.snap) and l.tx < pg_snapshot_xmax(e.snap)
    ) as m
    where n.queue_id = q.queue_id and n.priority >= 0 and penstock._is_read(e, m.tx, m.seq, 0)
$$;

-- What happened in a queue between two marks, one row for each set of positions.
create or replace function penstock._happened(
    q penstock.queue, s penstock.claim, e penstock.claim, _ended boolean
) returns table (
    entry bigint, lane_id integer, first bigint, last bigint, n integer, positions int8multirange, at bigint, event text,
    state text, by text, group_id integer, reason text, attempt integer, token bigint
)
language sql stable rows 1000 as $$
    select one.* from (
        select t.entry, null::integer as lane_id, t.first, t.last, t.n, t.positions, t.at, t.event, t.state, t.by, t.group_id,
            t.reason, t.attempt, t.token
        from penstock.step as t
        where t.queue_id = q.queue_id and t.first > 0
            and t.tx >= case when s.used_up then pg_snapshot_xmin(s.snap) else pg_snapshot_xmin(s.prev) end
            and not penstock._is_read(s, t.tx, t.entry, 0) and penstock._is_read(e, t.tx, t.entry, 0)
            and (
                not _ended
                or t.state in ('succeeded', 'rejected', 'failed', 'lease_expired', 'expired', 'cancelled')
            )
        union all
        select t.entry, t.lane_id, t.first, t.last, t.n, t.positions, t.at, 'receive', 'leased', t.consumer, t.group_id,
            null, 1, t.token
        from penstock.lane as l join penstock.claim as t using (lane_id)
        where l.queue_id = q.queue_id and t.n > 0 and not _ended
            and t.tx >= case when s.used_up then pg_snapshot_xmin(s.snap) else pg_snapshot_xmin(s.prev) end
            and not penstock._is_read(s, t.tx, t.entry, 0) and penstock._is_read(e, t.tx, t.entry, 0)
    ) as one
$$;

-- The farthest mark, not beyond the end, with so many rows and bytes between it and the start.
create or replace function penstock.cut(
    _queue text, _start text, _end text, _rows bigint, _size bigint, _table text
) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    s penstock.claim := penstock._mark_cursor(_start);
    e penstock.claim := penstock._mark_cursor(_end);
    c penstock.claim;
    m record;
    _count bigint := 0;
    _bytes bigint := 0;
    _is_first boolean := true;
begin
    c := e;
    -- The mark of what is left after trimming has no end of its own: its window ends where the asked-for one does.
    if not s.used_up and s.snap::text <> e.snap::text and pg_snapshot_xmax(s.snap) <= pg_snapshot_xmax(e.snap) and exists (
        select 1 from penstock._between(q, s, penstock._mark_cursor(penstock._mark(s.snap)))
    ) then
        -- First the rest of the window in which the start lies.
        c.snap := s.snap;
    end if;
    c.prev := case when s.used_up then s.snap else s.prev end;
    c.at_tx := '0';
    c.at_seq := 0;
    c.above := 0;
    c.used_up := false;
    if _table = 'messages' then
        for m in
            select b.tx, b.seq, octet_length(b.payload) as size
            from penstock._between(q, s, penstock._mark_cursor(penstock._mark(c.snap))) as b
            -- What is past retention may still lie in the log, and is not counted.
            where penstock._is_read(e, b.tx, b.seq, 0) and b.seq > q.trimmed_position
            order by b.tx, b.seq
            limit _rows + 1
        loop
            if not _is_first and (_count + 1 > _rows or _bytes + m.size > _size) then
                -- What was passed by its position stays passed.
                c.above := case when s.used_up then 0 else s.above end;
                return penstock._as_mark(c);
            end if;
            _is_first := false;
            _count := _count + 1;
            _bytes := _bytes + m.size;
            c.at_tx := m.tx;
            c.at_seq := m.seq;
        end loop;
    else
        for m in
            select h.entry, h.n
            from penstock._happened(q, s, penstock._mark_cursor(penstock._mark(c.snap)), _table = 'archive') as h
            order by h.entry
        loop
            if not _is_first and _count + m.n > _rows then
                return penstock._as_mark(c);
            end if;
            _is_first := false;
            _count := _count + m.n;
            c.above := m.entry;
        end loop;
    end if;
    return case when c.snap::text = e.snap::text then _end else penstock._mark(c.snap) end;
end
$$;

-- The rows between two marks in pieces of like size: how many rows each has, and the place of its last one.
create or replace function penstock.parts(_queue text, _start text, _end text, _parts integer, _table text)
returns table (n bigint, last_tx bigint, last_seq bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(_queue);
begin
    if _table <> 'dead_letters' then
        perform penstock._check_window(q, _table, _start, _end);
    end if;
    if _table = 'messages' then
        return query
        with pieces as (
            -- Counted once, in runs of up to eight messages of one transaction: fewer rows to sort.
            select k.tx, max(k.seq) as seq, count(*) as n
            from penstock._between(q, penstock._mark_cursor(_start), penstock._mark_cursor(_end)) as k
            group by k.tx, k.seq >> 3
        ), placed as (
            select p.tx, p.seq, p.n,
                ceil(sum(p.n) over (order by p.tx, p.seq) * _parts::numeric / sum(p.n) over ()) as tile
            from pieces as p
        )
        select sum(l.n)::bigint, (array_agg(l.tx order by l.tx desc, l.seq desc))[1]::text::bigint,
            (array_agg(l.seq order by l.tx desc, l.seq desc))[1]
        from placed as l group by l.tile order by l.tile;
    elsif _table = 'dead_letters' then
        return query
        select one.size, one.seq, one.group_id from (
            select b.seq, b.group_id::bigint, b.tile, count(*) over (partition by b.tile) as size,
                row_number() over (partition by b.tile order by b.seq desc, b.group_id desc) as place
            from (
                select d.seq, d.group_id, ntile(_parts) over (order by d.seq, d.group_id) as tile
                from penstock.dead_letter as d where d.queue_id = q.queue_id
            ) as b
        ) as one
        where one.place = 1 order by one.tile;
    else
        return query
        select sum(b.n)::bigint, max(b.entry), 9223372036854775807 from (
            select h.entry, h.n, ceil(
                sum(h.n) over (order by h.entry) * _parts::numeric / sum(h.n) over ()
            ) as tile
            from penstock._happened(
                q, penstock._mark_cursor(_start), penstock._mark_cursor(_end), _table = 'archive'
            ) as h
        ) as b
        group by b.tile order by b.tile;
    end if;
end
$$;

-- Move a stream group forward.
create or replace function penstock.advance(_queue text, _group text, _mark text, _table text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
    g penstock.reader := penstock._ensure_group(q, penstock._check_name('group', _group));
    c penstock.claim := penstock._mark_cursor(_mark);
    _followed text := case when _table = 'messages' then 'messages' else 'audit' end;
begin
    if _table = 'dead_letters' then
        raise exception using errcode = 'PN100',
            message = 'dead_letters are read as they are: a group has no place in them';
    end if;
    if g.stream_mark is null then
        if g.name is not distinct from q.primary_group
            or exists (select 1 from penstock.claim where group_id = g.group_id)
            or exists (select 1 from penstock.tracked where group_id = g.group_id) then
            raise exception using errcode = 'PN204', message = format(
                'group %s of queue %s is received with leases: stream with another group', penstock._shown(g.name),
                penstock._shown(q.name)
            );
        end if;
    elsif g.stream_table <> _followed then
        raise exception using errcode = 'PN204', message = format(
            'group %s of queue %s streams %s: stream %s with another group', penstock._shown(g.name),
            penstock._shown(q.name), g.stream_table, _table
        );
    elsif penstock._is_behind(c, penstock._mark_cursor(g.stream_mark)) then
        _mark := g.stream_mark;
    end if;
    update penstock.reader set stream_mark = _mark, stream_table = _followed, used_at = penstock.now_us()
    where group_id = g.group_id;
end
$$;

-- How many messages have ended beyond a mark.
create or replace function penstock._count_ended(q penstock.queue, _mark text) returns bigint
language sql stable as $$
    select coalesce(sum(h.n), 0)::bigint
    from penstock._happened(
        q, penstock._mark_cursor(_mark), penstock._mark_cursor(penstock._mark(pg_current_snapshot())), true
    ) as h
$$;

-- A cursor as a mark.
create or replace function penstock._as_mark(c penstock.claim) returns text
language sql immutable as $$
    select format(
        '%s/%s/%s/%s/%s/%s', c.prev, c.snap, c.at_tx, c.at_seq, c.above, case when c.used_up then 't' else 'f' end
    )
$$;

-- A mark as a cursor; refused when it is not one.
create or replace function penstock._mark_cursor(_mark text) returns penstock.claim
language plpgsql immutable as $$
declare
    c penstock.claim;
    -- 0 is the mark before everything.
    _parts text[] := string_to_array(case when _mark = '0' then '1:1:/1:1:/0/0/0/t' else _mark end, '/');
begin
    c.number := 1;
    c.prev := _parts[1];
    c.snap := _parts[2];
    c.at_tx := _parts[3];
    c.at_seq := _parts[4];
    c.above := _parts[5];
    c.used_up := _parts[6];
    c.passed := 0;
    c.token := 0;
    c.checked_at := 0;
    return c;
exception when others then
    raise exception using errcode = 'PN100', message = format(
        '%s is not a mark of this store', penstock._shown(_mark)
    );
end
$$;

-- How many messages of a queue lie beyond a mark.
create or replace function penstock._count_beyond(q penstock.queue, _mark text) returns bigint
language sql stable as $$
    select coalesce(sum(
        (
            select count(*) from penstock.log as m
            where m.lane_id = n.lane_id and m.tx >= pg_snapshot_xmax(c.snap) and m.seq > q.trimmed_position
        ) + (
            select count(*) from pg_snapshot_xip(c.snap) as o (x)
            join penstock.log as m on m.lane_id = n.lane_id and m.tx = o.x and m.seq > q.trimmed_position
        ) + case when c.used_up then 0 else (
            select count(*) from penstock._window(n.lane_id, c, q.trimmed_position)
        ) end
    ), 0)::bigint
    from penstock._mark_cursor(_mark) as c
    cross join penstock.lane as n
    where n.queue_id = q.queue_id and n.priority >= 0
$$;
