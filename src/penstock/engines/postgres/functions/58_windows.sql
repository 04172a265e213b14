-- Windows: how the pipeline reads. A mark is a cursor as text: prev/snap/tx/seq/above/used up, and its witness.

-- The mark behind everything that a snapshot sees.
create or replace function penstock._mark(_snap pg_snapshot) returns text
language sql immutable as $$
    select format('%s/%s/0/0/0/t', _snap, _snap)
$$;

-- The mark behind all messages of a queue up to a position that are visible now.
create or replace function penstock._mark_above(q penstock.queue, _position bigint) returns text
language plpgsql volatile as $$
declare
    _snap pg_snapshot := penstock._snapshot();
    _last xid8 := penstock._last_tx(q, 'messages', _snap);
begin
    if _last is null then
        return '0';
    end if;
    return penstock._lowered(penstock._witnessed(
        q, format('1:1:/%s/0/0/%s/f', penstock._narrowed(_snap, _last), _position), 'messages'
    ));
end
$$;

-- The mark behind the last message of a queue that was sent before a time.
create or replace function penstock.mark_at(_queue text, _at bigint) returns text
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select penstock._mark_above(q, penstock._position_at(_at)) from penstock.queue as q where q.name = _queue
$$;

-- A mark that has passed by position alone passes up to its witness: another queue may get the positions beyond, should the
-- store be restored.
create or replace function penstock._lowered(_mark text) returns text
language sql immutable as $$
    select case when part[7] is null then '0'
        else array_to_string(part[1:4] || split_part(part[7], ':', 2) || part[6:7], '/') end
    from string_to_array(_mark, '/') as part
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
    return penstock._witnessed(q, penstock._mark(_narrow), _table);
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
            when q.trimmed_rows <> '{}' then
                penstock._lowered(penstock._witnessed(q, penstock._mark_decided(q.trimmed_position), _table))
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
begin
    if _start = _end then
        return;
    end if;
    perform penstock._check_mark(q, _table, _start);
    perform penstock._check_mark(q, _table, _end);
    if penstock._is_past(q, _table, penstock._mark_cursor(_start)) then
        raise exception using errcode = 'PN206', message = format(
            'some of the %s of queue %s after %s are past retention; what is left begins after %s', _table,
            penstock._shown(q.name), _start, penstock.earliest(q.name, _table)
        );
    end if;
end
$$;

-- The messages of a queue between two marks, after a place and not beyond another, as a statement: each lane is a branch
-- of its own, which can be read in the order of its index, so that nothing is sorted however much there is.
create or replace function penstock._between(
    q penstock.queue, _start text, _end text, _after_tx xid8 default '0', _after_seq bigint default 0,
    _upto_tx xid8 default '9223372036854775807', _upto_seq bigint default 9223372036854775807
) returns text
language sql stable as $$
    select penstock._between_places(
        q, _start, _end, format('%L::xid8, %s', later.tx, later.seq), format('%L::xid8, %s', _after_tx, _after_seq),
        format('%L::xid8, %s', final.tx, final.seq)
    )
    from penstock._later(_start, _after_tx, _after_seq) as later
    cross join penstock._final(_end, _upto_tx, _upto_seq) as final
$$;

-- The place after which all rows lie that were sent after the start of a window and after a place, but for those of
-- transactions that were open at the start.
create or replace function penstock._later(
    _start text, _after_tx xid8, _after_seq bigint, out tx xid8, out seq bigint
)
language sql immutable as $$
    select place.tx, place.seq
    from penstock._beyond(penstock._mark_cursor(_start)) as b
    cross join lateral (values (b.tx, b.seq), (_after_tx, _after_seq)) as place (tx, seq)
    order by place.tx desc, place.seq desc limit 1
$$;

-- The place up to which all rows lie that were sent before the end of a window, and not beyond a place. A window that was
-- cut ends there: without this every row behind it would be looked at, and found to be too late.
create or replace function penstock._final(_end text, _upto_tx xid8, _upto_seq bigint, out tx xid8, out seq bigint)
language sql immutable as $$
    select place.tx, place.seq
    from penstock._mark_cursor(_end) as e
    cross join lateral (
        select _upto_tx, _upto_seq
        union all
        select b.tx, b.seq from penstock._beyond(e) as b where not e.used_up and e.above = 0
    ) as place (tx, seq)
    order by place.tx, place.seq limit 1
$$;

-- The same with places that are texts, so that they can be columns of another table: _later as of the function of that
-- name, and _after for transactions that were open at the start. A branch has one lower bound, because only one of several
-- would be looked for in the index.
create or replace function penstock._between_places(
    q penstock.queue, _start text, _end text, _later text, _after text, _upto text
) returns text
language sql stable as $$
    select coalesce(string_agg(format(
        'select l.* from penstock.log as l where l.lane_id = %s and l.tx < %L::xid8 and (l.tx, l.seq) <= (%s) and %s',
        n.lane_id, pg_snapshot_xmax(e.snap), _upto, branch.condition
    ), ' union all ' order by n.lane_id, branch.condition), 'select l.* from penstock.log as l where false')
    from penstock._mark_cursor(_start) as s
    cross join penstock._mark_cursor(_end) as e
    cross join lateral penstock._beyond(s) as b
    cross join lateral (
        -- What these do not say is that rows lie between places that the index knows.
        select format('not penstock._is_read(penstock._mark_cursor(%L), l.tx, l.seq, 0)', _start) as after_start,
            case when e.used_up and pg_snapshot_xmin(e.snap) = pg_snapshot_xmax(e.snap) then 'true'
                else format('penstock._is_read(penstock._mark_cursor(%L), l.tx, l.seq, 0)', _end) end as before_end
    ) as filter
    cross join lateral (
        select format(
            '(l.tx, l.seq) > (%s) and %s and %s', _later,
            case when s.used_up or s.above = 0 then 'true' else filter.after_start end, filter.before_end
        )
        union all
        select format(
            'l.tx = any (%L::xid8[]) and (l.tx, l.seq) > (%s) and %s and %s', b.earlier, _after, filter.after_start,
            filter.before_end
        )
        where cardinality(b.earlier) > 0
    ) as branch (condition)
    join penstock.lane as n on n.queue_id = q.queue_id and n.priority >= 0
$$;

-- Where rows lie that a cursor has not passed: after a place, and in earlier transactions that were open then. There may
-- be others among them that it has passed.
create or replace function penstock._beyond(c penstock.claim, out tx xid8, out seq bigint, out earlier xid8[])
language sql immutable as $$
    select place.tx, place.seq, array(
        select x from (
            select x from pg_snapshot_xip(c.snap) as x
            union
            select x from pg_snapshot_xip(c.prev) as x where not c.used_up
        ) as open
        where x <= place.tx order by x
    )
    from (
        select c.at_tx as tx, c.at_seq as seq where not c.used_up
        union all
        select ((pg_snapshot_xmax(case when c.used_up then c.snap else c.prev end)::text::bigint - 1)::text)::xid8,
            9223372036854775807
    ) as place
    order by place.tx desc, place.seq desc limit 1
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
    perform penstock._check_mark(q, _table, _mark);
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

-- How many messages have ended beyond a mark. What happened to messages that were taken out is still written down, so
-- where there were such ones the messages are looked for.
create or replace function penstock._count_ended(q penstock.queue, _mark text) returns bigint
language sql stable as $$
    select coalesce(sum(case when removed.any then (
        select count(*) from unnest(penstock._all(h.first, h.last, h.positions)) as one (run)
        join penstock.log as m on m.seq >= lower(one.run) and m.seq < upper(one.run)
        join penstock.lane as n on n.lane_id = m.lane_id and n.queue_id = q.queue_id
    ) else h.n end), 0)::bigint
    from penstock._happened(
        q, penstock._mark_cursor(_mark), penstock._mark_cursor(penstock._mark(pg_current_snapshot())), true
    ) as h
    cross join (select exists (select 1 from penstock.removal as r where r.queue_id = q.queue_id)) as removed ("any")
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
