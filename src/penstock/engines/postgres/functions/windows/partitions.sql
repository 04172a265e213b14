-- Windows in parts: cut at a number of rows or bytes, and split for several readers.

-- The farthest mark, not beyond the end, with at most so many rows and bytes between it and the start.
create or replace function penstock.cut(
    _queue text, _start text, _end text, _rows bigint, _size bigint, _table text
) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    s penstock.cursor := penstock._mark_as_cursor(_start);
    e penstock.cursor := penstock._mark_as_cursor(_end);
    c penstock.cursor;
    _has_rest boolean := false;
begin
    c := e;
    -- The mark behind trimmed messages has no snapshot of its own: its window ends where the requested one does.
    if not s.used_up and s.snap::text <> e.snap::text and pg_snapshot_xmax(s.snap) <= pg_snapshot_xmax(e.snap) then
        execute format(
            'select exists (select 1 from (%s) as m)', penstock._messages_between(q, _start, penstock._make_mark(s.snap))
        ) into _has_rest;
        if _has_rest then
            -- First the rest of the window in which the start lies.
            c.snap := s.snap;
        end if;
    end if;
    c.prev := case when s.used_up then s.snap else s.prev end;
    c.at_tx := '0';
    c.at_position := 0;
    c.above := 0;
    c.used_up := false;
    c := case when _table = 'messages' then penstock._cut_messages(q, s, c, _start, _end, _rows, _size)
        else penstock._cut_audit(q, s, c, _rows, _table) end;
    if c.used_up and c.snap::text = e.snap::text then
        return _end;
    end if;
    return penstock._add_witness(q, case when c.used_up then penstock._make_mark(c.snap) else penstock._cursor_as_mark(c) end, _table);
end
$$;

-- Move a cursor within its window past so many rows and bytes; used up when the window has no more.
create or replace function penstock._cut_messages(
    q penstock.queue, s penstock.cursor, c penstock.cursor, _start text, _end text, _rows bigint, _size bigint
) returns penstock.cursor
language plpgsql stable as $$
declare
    _tx xid8;
    _position bigint;
    _length integer;
    _count bigint := 0;
    _bytes bigint := 0;
    -- Rows that need not be looked at one by one.
    _skipped bigint := case when _size is null then _rows - 1 else 0 end;
begin
    for _tx, _position, _length in execute format(
        'select m.tx, m.position, octet_length(m.payload) from (%s) as m '
        -- Messages past retention may still be in the log, and are not counted.
        'where m.position > $1 and penstock._is_behind_cursor(penstock._mark_as_cursor($2), m.tx, m.position, 0) '
        'order by m.tx, m.position offset $3 limit $4',
        penstock._messages_between(q, _start, penstock._make_mark(c.snap))
    ) using q.trimmed_position, _end, _skipped, _rows - _skipped + 1 loop
        if _count > 0 and (_skipped + _count + 1 > _rows or _bytes + _length > _size) then
            -- Rows that were passed by position stay passed.
            c.above := case when s.used_up then 0 else s.above end;
            return c;
        end if;
        _count := _count + 1;
        _bytes := _bytes + _length;
        c.at_tx := _tx;
        c.at_position := _position;
    end loop;
    c.used_up := true;
    return c;
end
$$;

-- Move a cursor of the audit trail past so many rows; an entry is not divided.
create or replace function penstock._cut_audit(
    q penstock.queue, s penstock.cursor, c penstock.cursor, _rows bigint, _table text
) returns penstock.cursor
language plpgsql stable set enable_sort = on as $$
declare
    m record;
    _count bigint := 0;
begin
    for m in
        select h.entry, h.n
        from penstock._audit_between(q, s, penstock._mark_as_cursor(penstock._make_mark(c.snap)), _table = 'archive') as h
        order by h.entry
    loop
        if _count > 0 and _count + m.n > _rows then
            return c;
        end if;
        _count := _count + m.n;
        c.above := m.entry;
    end loop;
    c.used_up := true;
    return c;
end
$$;

-- Split the rows between two marks into parts of similar size: the number of rows, whether it was counted, the place of
-- the last row, and what reveals later whether rows have gone.
create or replace function penstock.parts(_queue text, _start text, _end text, _parts integer, _table text)
returns table (
    n bigint, is_counted boolean, last_tx bigint, last_position bigint, epoch bigint, given bigint, removals bigint
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(_queue);
begin
    if _table <> 'dead_letters' then
        perform penstock._check_window(q, _table, _start, _end);
    end if;
    epoch := (select s.epoch from penstock.store as s);
    given := penstock._last_position();
    if _table = 'messages' then
        return query select p.n, p.is_counted, p.last_tx, p.last_position, epoch, given, q.removals
        from penstock._message_parts(q, _start, _end, _parts) as p;
    elsif _table = 'dead_letters' then
        return query
        select one.size, true, one.position, one.group_id, epoch, given, q.removals from (
            select b.position, b.group_id::bigint, b.tile, count(*) over (partition by b.tile) as size,
                row_number() over (partition by b.tile order by b.position desc, b.group_id desc) as place
            from (
                select d.position, d.group_id, ntile(_parts) over (order by d.position, d.group_id) as tile
                from penstock.dead_letter as d where d.queue_id = q.queue_id
            ) as b
        ) as one
        where one.place = 1 order by one.tile;
    else
        return query
        -- Entries of removed messages remain, but their messages are not found.
        select sum(b.n)::bigint, not exists (select 1 from penstock.removal as r where r.queue_id = q.queue_id),
            max(b.entry), 9223372036854775807, epoch, given, q.removals from (
            select h.entry, h.n, ceil(
                sum(h.n) over (order by h.entry) * _parts::numeric / sum(h.n) over ()
            ) as tile
            from penstock._audit_between(
                q, penstock._mark_as_cursor(_start), penstock._mark_as_cursor(_end), _table = 'archive'
            ) as h
        ) as b
        group by b.tile order by b.tile;
    end if;
end
$$;

-- Refuse a part of which rows have gone since the window was split: removed, or past retention. Rows removed from an
-- audit trail are not known by their place there.
create or replace function penstock.check_part(
    _queue text, _table text, _start text, _end text, _after_tx xid8, _after_position bigint, _upto_tx xid8, _upto_position bigint,
    _epoch bigint, _given bigint, _removals bigint
) returns void
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
begin
    if (select epoch from penstock.store) <> _epoch or penstock._last_position() < _given or q.removals < _removals then
        raise exception using errcode = 'PN206', message = format(
            'the %s of queue %s are not those of the window that was split: the store was restored since', _table,
            penstock._quote_value(_queue)
        );
    end if;
    if q.removals > _removals and (_table <> 'messages' or exists (
        select 1 from penstock.removal as r
        where r.queue_id = q.queue_id and r.number > _removals
            and (r.last_tx, r.last_position) > (_after_tx, _after_position) and (r.first_tx, r.first_position) <= (_upto_tx, _upto_position)
    )) then
        raise exception using errcode = 'PN206', message = format(
            'messages of queue %s were removed since the window of its %s was split: read it again',
            penstock._quote_value(_queue), _table
        );
    end if;
    if _table <> 'messages' or (_after_tx, _after_position) < (q.trimmed_tx, q.trimmed_position) then
        perform penstock._check_window(q, _table, _start, _end);
    end if;
end
$$;

-- Split the messages between two marks. A few are counted; of many the index is sampled.
create or replace function penstock._message_parts(q penstock.queue, _start text, _end text, _parts integer)
returns table (n bigint, is_counted boolean, last_tx bigint, last_position bigint)
language plpgsql stable set enable_bitmapscan = off set enable_sort = off as $$
declare
    _statement text := penstock._messages_between(q, _start, _end);
    _few constant integer := 20000;
    _has_many boolean;
    _first bigint;
    _last bigint;
begin
    execute format('select exists (select 1 from (%s) as m offset $1)', _statement) into _has_many using _few;
    if _has_many then
        execute format('select m.position from (%s) as m order by m.tx, m.position limit 1', _statement) into _first;
        execute format('select m.position from (%s) as m order by m.tx desc, m.position desc limit 1', _statement) into _last;
    end if;
    if _last - _first >= _few then
        return query select p.n, false, p.last_tx, p.last_position
        from penstock._estimated_parts(q, _start, _end, _parts, _first, _last) as p;
    else
        return query select p.n, true, p.last_tx, p.last_position from penstock._counted_parts(q, _start, _end, _parts) as p;
    end if;
end
$$;

-- Split many messages into parts of about the same size, at equal distances between about the first and the last
-- position. The density of messages there is sampled.
create or replace function penstock._estimated_parts(
    q penstock.queue, _start text, _end text, _parts integer, _first bigint, _last bigint
) returns table (n bigint, last_tx bigint, last_position bigint)
language plpgsql stable set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    _slots integer := least(greatest(8 * _parts, 128), 2048);
    _sizes bigint[] := '{}';
    _txs xid8[] := '{}';
    _positions bigint[] := '{}';
    _total bigint := 0;
    _upto bigint := 0;
    _before bigint := 0;
    _made integer := 0;
    _slot_tx xid8;
    _slot_position bigint;
    _found bigint;
    _found_first bigint;
    _found_last bigint;
begin
    for _slot_tx, _slot_position, _found, _found_first, _found_last in execute format(
        'with place as materialized ('
        '    select l.tx, goal.position from ('
        '        select $1 + (($2 - $1)::numeric * number / $3)::bigint as position from generate_series(1, $3 - 1) as number'
        '    ) as goal cross join lateral ('
        '        select l.tx from penstock.log as l where l.position >= goal.position order by l.position limit 1'
        '    ) as l'
        '), slot as materialized ('
        '    select lag(one.tx, 1, ''0'') over w as after_tx, lag(one.position, 1, 0::bigint) over w as after_position, one.tx, one.position '
        '    from (table place union all values (''9223372036854775807''::xid8, 9223372036854775807)) as one '
        '    window w as (order by one.tx, one.position)'
        ') '
        'select slot.tx, slot.position, found.n, found.first, found.last '
        'from slot cross join lateral ('
        '    select count(*) as n, min(m.position) as first, max(m.position) as last from ('
        '        select m.position from (%s) as m order by m.tx, m.position limit 32'
        '    ) as m'
        ') as found '
        'order by slot.tx, slot.position',
        penstock._messages_between_places(
            q, _start, _end, 'slot.after_tx, slot.after_position', 'slot.after_tx, slot.after_position', 'slot.tx, slot.position'
        )
    ) using _first, _last, _slots loop
        if _found = 32 then
            _found := greatest(
                _found, _found * (least(_slot_position, _last) - _found_first + 1) / (_found_last - _found_first + 1)
            );
        end if;
        _sizes := _sizes || _found;
        _txs := _txs || _slot_tx;
        _positions := _positions || _slot_position;
        _total := _total + _found;
    end loop;
    for number in 1..cardinality(_sizes) loop
        _upto := _upto + _sizes[number];
        -- The last one takes whatever is left, even if nothing was seen there.
        continue when number < cardinality(_sizes)
            and (_made = _parts - 1 or _upto = _before or _upto * _parts < _total * (_made + 1));
        _made := _made + 1;
        n := _upto - _before;
        last_tx := _txs[number]::text::bigint;
        last_position := _positions[number];
        _before := _upto;
        return next;
    end loop;
end
$$;

-- Split a few messages. They are counted by transaction; only large transactions are divided.
create or replace function penstock._counted_parts(q penstock.queue, _start text, _end text, _parts integer)
returns table (n bigint, last_tx bigint, last_position bigint)
language plpgsql stable set enable_bitmapscan = off set enable_sort = off as $$
declare
    _statement text := penstock._messages_between(q, _start, _end);
    _before bigint := 0;
    _upto bigint;
    _tx xid8;
    _sent bigint;
    _sent_upto bigint;
    _total bigint;
    _goal bigint;
begin
    for _tx, _sent, _sent_upto, _total, _goal in execute format(
        'with sent as (select m.tx, count(*) as n from (%s) as m group by m.tx), '
        'counted as materialized ('
        '    select tx, n, (sum(n) over (order by tx))::bigint as upto, (sum(n) over ())::bigint as total from sent'
        ') '
        'select one.* from generate_series(1, $1) as number '
        'cross join lateral ('
        '    select c.tx, c.n, c.upto, c.total, c.total * number / $1 as goal from counted as c '
        '    where c.upto >= c.total * number / $1 order by c.tx limit 1'
        ') as one',
        _statement
    ) using _parts loop
        _upto := _sent_upto;
        last_position := 9223372036854775807;
        if _sent_upto > _goal and _sent > _total / _parts / 8 then
            _upto := _goal;
            continue when _upto <= _sent_upto - _sent;
            execute format(
                'select m.position from (%s) as m where m.tx = $1 order by m.tx, m.position offset $2 limit 1', _statement
            ) into last_position using _tx, _upto - (_sent_upto - _sent) - 1;
        end if;
        continue when _upto <= _before;
        n := _upto - _before;
        last_tx := _tx::text::bigint;
        _before := _upto;
        return next;
    end loop;
end
$$;
