-- Marks: a cursor as text, prev/snap/tx/position/above/used up, and its witness.

-- The mark behind everything that a snapshot shows.
create or replace function penstock._make_mark(_snap pg_snapshot) returns text
language sql immutable as $$
    select format('%s/%s/0/0/0/t', _snap, _snap)
$$;

-- The mark behind all messages of a queue up to a position that are visible now.
create or replace function penstock._mark_above(q penstock.queue, _position bigint) returns text
language plpgsql volatile as $$
declare
    _snap pg_snapshot := penstock._current_snapshot();
    _last xid8 := penstock._last_tx(q, 'messages', _snap);
begin
    if _last is null then
        return '0';
    end if;
    return penstock._lower_mark(penstock._add_witness(
        q, format('1:1:/%s/0/0/%s/f', penstock._narrow_snapshot(_snap, _last), _position), 'messages'
    ));
end
$$;

-- The mark behind the last message of a queue that was sent before a time.
create or replace function penstock.mark_at(_queue text, _at bigint) returns text
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select penstock._mark_above(q, penstock._position_at(_at)) from penstock.queue as q where q.name = _queue
$$;

-- Lower a mark that has passed by position alone to its witness: after a restore another queue may get the positions
-- beyond.
create or replace function penstock._lower_mark(_mark text) returns text
language sql immutable as $$
    select case when part[7] is null then '0'
        else array_to_string(part[1:4] || split_part(part[7], ':', 2) || part[6:7], '/') end
    from string_to_array(_mark, '/') as part
$$;

-- A snapshot that shows the same of transactions up to _last and does not mention later ones: its text stays the same
-- as long as nothing changes.
create or replace function penstock._narrow_snapshot(_snap pg_snapshot, _last xid8) returns pg_snapshot
language sql immutable as $$
    select format(
        '%s:%s:%s', coalesce(min(x::text::bigint), _last::text::bigint + 1), _last::text::bigint + 1,
        string_agg(x::text, ',' order by x)
    )::pg_snapshot
    from pg_snapshot_xip(_snap) as x
    where x <= _last
$$;

-- The mark up to which every committed row is readable. Transactions that have just begun get a moment to end, because
-- a mark that does not name them is simpler; long ones are not waited for.
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
        _snap := penstock._current_snapshot();
        _last := penstock._last_tx(q, _table, _snap);
        if _last is null then
            return '0';
        end if;
        _narrow := penstock._narrow_snapshot(_snap, _last);
        exit when pg_snapshot_xmin(_narrow) = pg_snapshot_xmax(_narrow);
        perform pg_sleep(0.002);
    end loop;
    return penstock._add_witness(q, penstock._make_mark(_narrow), _table);
end
$$;

-- The last transaction that has written rows of a queue that a snapshot shows.
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
                select ((pg_snapshot_xmax((penstock._mark_as_cursor(q.trail_mark)).snap)::text::bigint - 1)::text)::xid8
                where q.trail_mark is not null
            ),
            (
                select s.tx from penstock.audit as s
                where s.queue_id = q.queue_id and pg_visible_in_snapshot(s.tx, _snap) order by s.tx desc limit 1
            ),
            (
                select last.tx from penstock.lane as n
                cross join lateral (
                    select c.tx from penstock.cursor as c
                    where c.lane_id = n.lane_id and c.n > 0 and pg_visible_in_snapshot(c.tx, _snap)
                    order by c.tx desc limit 1
                ) as last
                where n.queue_id = q.queue_id
                order by last.tx desc limit 1
            )
        )
    ) end
$$;

-- The mark from which a table is complete.
create or replace function penstock.earliest(_queue text, _table text) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce((
        select case
            when _table <> 'messages' then q.trail_mark
            when q.log_mark is not null then q.log_mark
            when q.trimmed_rows <> '{}' then
                -- Behind all messages up to that position, whatever snapshot.
                penstock._lower_mark(penstock._add_witness(q, format(
                    '1:1:/9223372036854775807:9223372036854775807:/0/0/%s/f', q.trimmed_position
                ), _table))
        end
        from penstock.queue as q where q.name = _queue
    ), '0')
$$;

-- Whether a cursor has passed everything that transactions up to _tx have written, up to a position.
create or replace function penstock._has_passed(c penstock.cursor, _tx xid8, _position bigint) returns boolean
language sql immutable as $$
    select penstock._shows_all(c.prev, _tx) or (
        penstock._shows_all(c.snap, _tx)
        and (c.used_up or (c.at_tx, c.at_position) >= (_tx, _position) or (c.above >= _position and _position > 0))
    )
$$;

-- Whether a snapshot shows all transactions up to one.
create or replace function penstock._shows_all(_snap pg_snapshot, _tx xid8) returns boolean
language sql immutable as $$
    select _tx < pg_snapshot_xmax(_snap) and not exists (select 1 from pg_snapshot_xip(_snap) as x where x <= _tx)
$$;

-- Whether everything behind one mark is behind another.
create or replace function penstock._is_mark_behind(_one penstock.cursor, _other penstock.cursor) returns boolean
language sql immutable as $$
    select case
        when (_one.prev::text, _one.snap::text) = (_other.prev::text, _other.snap::text) and not _other.used_up then
            not _one.used_up and (_one.at_tx, _one.at_position, _one.above) <= (_other.at_tx, _other.at_position, _other.above)
        else penstock._contains_snapshot(_other.prev, _one.snap)
            or (_other.used_up and penstock._contains_snapshot(_other.snap, _one.snap))
    end
$$;

-- Whether a snapshot shows everything that another one shows.
create or replace function penstock._contains_snapshot(_large pg_snapshot, _small pg_snapshot) returns boolean
language sql immutable as $$
    select pg_snapshot_xmax(_large) >= pg_snapshot_xmax(_small) and not exists (
        select 1 from pg_snapshot_xip(_large) as x
        where x < pg_snapshot_xmax(_small) and pg_visible_in_snapshot(x, _small)
    )
$$;

-- Convert a cursor to a mark.
create or replace function penstock._cursor_as_mark(c penstock.cursor) returns text
language sql immutable as $$
    select format(
        '%s/%s/%s/%s/%s/%s', c.prev, c.snap, c.at_tx, c.at_position, c.above, case when c.used_up then 't' else 'f' end
    )
$$;

-- Convert a mark to a cursor; an error when it is malformed.
create or replace function penstock._mark_as_cursor(_mark text) returns penstock.cursor
language plpgsql immutable as $$
declare
    c penstock.cursor;
    -- 0 is the mark before everything.
    _parts text[] := string_to_array(case when _mark = '0' then '1:1:/1:1:/0/0/0/t' else _mark end, '/');
begin
    c.number := 1;
    c.prev := _parts[1];
    c.snap := _parts[2];
    c.at_tx := _parts[3];
    c.at_position := _parts[4];
    c.above := _parts[5];
    c.used_up := _parts[6];
    c.passed := 0;
    c.token := 0;
    c.checked_at := 0;
    return c;
exception when others then
    raise exception using errcode = 'PN100', message = format(
        '%s is not a mark of this store', penstock._quote_value(_mark)
    );
end
$$;
