-- Seek: moving the cursors of a group.

-- Move a group to a position, a time (microseconds), "start" or "end": messages behind it are passed, those before it
-- are ready again unless they are leased or wait for a retry. Returns the position.
create or replace function penstock.seek(
    queue text, "group" text, target text, is_time boolean default false
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(seek.queue);
    g penstock.group := penstock._ensure_group(q, penstock._check_name('group', seek."group"));
    _now bigint := penstock.now_us();
    _position bigint := penstock._seek_position(q, target, is_time);
    n penstock.lane;
begin
    if g.stream_mark is not null then
        update penstock.group set used_at = _now,
            stream_mark = case when target = 'end' then penstock._make_mark(penstock._current_snapshot())
                else penstock._mark_above(q, _position) end
        where group_id = g.group_id;
        return _position;
    end if;
    perform penstock._lock_lanes(q, g.group_id);
    select * into q from penstock.queue where queue_id = q.queue_id;
    if not found then
        -- It was deleted meanwhile.
        return penstock.seek(seek.queue, seek."group", target, is_time);
    end if;
    _now := penstock.now_us();
    for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 order by lane_id loop
        perform penstock._seek_lane(q, g, n, _position, _now);
    end loop;
    perform penstock._wake_receivers(q.queue_id);
    return _position;
end
$$;

-- The last position sent before a time. Messages that were never held are in the order of their times, except for clock
-- jumps.
create or replace function penstock._position_at(_at bigint) returns bigint
language plpgsql stable as $$
declare
    _low bigint := 0;
    _high bigint := penstock._last_position();
    _middle bigint;
    _created_at bigint;
begin
    while _low < _high loop
        _middle := (_low + _high + 1) / 2;
        select created_at into _created_at from penstock.log
        where position >= _middle and available_at is null order by position limit 1;
        if _created_at < _at then
            _low := _middle;
        else
            _high := _middle - 1;
        end if;
    end loop;
    return _low;
end
$$;

create or replace function penstock._seek_lane(
    q penstock.queue, g penstock.group, n penstock.lane, _position bigint, _now bigint
) returns void
language plpgsql as $$
declare
    c penstock.cursor := penstock._get_cursor(g.group_id, n.lane_id);
    _snap pg_snapshot := penstock._current_snapshot();
    _again bigint[];
    m penstock.log;
    ended record;
    _positions bigint[];
begin
    -- Messages passed by are neither handed out nor ended, unless somebody waits for their end.
    if g.name is not distinct from q.primary_group then
        for m in
            select l.* from penstock.log as l
            where l.position > q.trimmed_position and l.position <= _position and l.lane_id = n.lane_id
                and (l.address is not null or l.batch_id is not null) and pg_visible_in_snapshot(l.tx, _snap)
                and not penstock._is_behind_cursor(c, l.tx, l.position, q.trimmed_position)
                and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.position = l.position)
            order by l.position
        loop
            perform penstock._end_message(
                q, g, penstock._log_row(m, n.priority, null, null), 'seek', 'cancelled', 'system',
                'the group was moved past it', 0, null, true, _now
            );
        end loop;
    end if;
    delete from penstock.skip as s
    where s.group_id = g.group_id and s.position <= _position
        and exists (select 1 from penstock.log as l where l.position = s.position and l.lane_id = n.lane_id);
    -- Finished messages are ready again, also those ahead of the cursor, which may have been leased during an earlier
    -- seek; leased messages and retries are skipped.
    _again := array(
        select l.position from penstock.log as l
        where l.position > _position and l.lane_id = n.lane_id and penstock._is_behind_cursor(c, l.tx, l.position, q.trimmed_position)
        union
        select s.position from penstock.skip as s
        join penstock.log as l on l.position = s.position and l.lane_id = n.lane_id
        where s.group_id = g.group_id and s.position > _position
    );
    delete from penstock.skip as s where s.group_id = g.group_id and s.position = any (_again);
    insert into penstock.skip (group_id, position)
    select g.group_id, a.position from unnest(_again) as a (position)
    where exists (select 1 from penstock.tracked as t where t.group_id = g.group_id and t.position = a.position)
        or exists (
            select 1 from penstock.lease as e
            where e.group_id = g.group_id and e.lane_id = n.lane_id and e.positions @> a.position
        )
    on conflict do nothing;
    for ended in
        select final.state, array_agg(final.position order by final.position) as position_array, count(*)::integer as n
        from (
            select distinct on (one.position) one.position, s.state
            from penstock.audit as s
            cross join lateral unnest(penstock._list_positions(penstock._expand_positions(s.first, s.last, s.positions))) as one (position)
            join unnest(_again) as a (position) on a.position = one.position
            where s.queue_id = q.queue_id and s.group_id = g.group_id and s.last > _position and s.event <> 'receive'
            order by one.position, s.entry desc
        ) as final
        where final.state in ('succeeded', 'rejected', 'failed', 'lease_expired', 'expired', 'cancelled')
            and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.position = final.position)
        group by final.state
    loop
        _positions := ended.position_array;
        perform penstock._record_audit(
            q.queue_id, g.group_id, 'seek', 'ready', _positions[1], 'system', null, 0, null, _now, null, _positions[ended.n],
            ended.n, penstock._compact_positions(_positions, _positions[1], _positions[ended.n])
        );
        perform penstock._subtract_outcomes(g.group_id, ended.state, ended.n);
        delete from penstock.dead_letter where group_id = g.group_id and position = any (_positions);
    end loop;
    if cardinality(_again) > 0 then
        perform penstock._widen_expiry(q.queue_id, g.group_id, 0);
    end if;
    perform penstock._place_cursor(q, g, n, c, _position, _snap, _now);
end
$$;

-- Put a cursor behind all messages up to a position. Messages that the snapshot does not show are read later, wherever they lie.
create or replace function penstock._place_cursor(
    q penstock.queue, g penstock.group, n penstock.lane, c penstock.cursor, _position bigint, _snap pg_snapshot,
    _now bigint
) returns void
language plpgsql as $$
declare
    _first xid8;
    _passed bigint;
begin
    select count(*) into _passed from penstock.log as l
    where l.position > q.trimmed_position and l.position <= _position and l.lane_id = n.lane_id
        and pg_visible_in_snapshot(l.tx, _snap);
    select l.tx into _first from penstock.log as l
    where l.lane_id = n.lane_id and l.position > _position and pg_visible_in_snapshot(l.tx, _snap)
    order by l.tx, l.position limit 1;
    c.prev := '1:1:';
    c.snap := _snap;
    c.used_up := _first is null;
    c.at_tx := coalesce(_first, '0');
    c.at_position := 0;
    c.above := _position;
    c.passed := n.trimmed;
    perform penstock._move_cursor(
        g.group_id, n.lane_id, c, _passed, '{}', null, c.token, 0, _now
    );
end
$$;

-- Subtract messages that are live again from the counts of outcomes; the monotonic counters keep them.
create or replace function penstock._subtract_outcomes(_group_id integer, _state text, _n integer) returns void
language sql as $$
    update penstock.group
    set succeeded = succeeded - case _state when 'succeeded' then _n else 0 end,
        undone_succeeded = undone_succeeded + case _state when 'succeeded' then _n else 0 end,
        rejected = rejected - case _state when 'rejected' then _n else 0 end,
        undone_rejected = undone_rejected + case _state when 'rejected' then _n else 0 end,
        failed = failed - case _state when 'failed' then _n else 0 end,
        undone_failed = undone_failed + case _state when 'failed' then _n else 0 end,
        lease_expired = lease_expired - case _state when 'lease_expired' then _n else 0 end,
        undone_lease_expired = undone_lease_expired + case _state when 'lease_expired' then _n else 0 end,
        expired = expired - case _state when 'expired' then _n else 0 end,
        undone_expired = undone_expired + case _state when 'expired' then _n else 0 end,
        cancelled = cancelled - case _state when 'cancelled' then _n else 0 end,
        undone_cancelled = undone_cancelled + case _state when 'cancelled' then _n else 0 end
    where group_id = _group_id
$$;
