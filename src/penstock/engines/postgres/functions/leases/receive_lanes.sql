-- ready -> leased from the lanes of a queue. Unread messages are read by windows. The window of a cursor has the rows that
-- one snapshot shows and the one before it does not; sequence values commit out of order, but a transaction that was
-- open in the first snapshot is known by its number. One transaction at a time moves the cursor of a lane; with several
-- shards a receive goes on to the next, and one that stays open is overtaken: see lane_locks.sql.

-- Receive from all lanes, best priority first; the last row has the token. With several lanes each has two turns: one in
-- which it is left to another transaction that reads it, and one in which it is waited for, because a worse priority must
-- not be handed out while a better one is ready. The only lane was entered before, and its cursor is known.
create or replace function penstock._receive_from_lanes(
    r penstock.receive_call, q penstock.queue, g penstock.group, c penstock.cursor, _how text, _others int8multirange
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    _room integer := r.most;
    _busy integer[] := '{}';
    _entered integer[] := case when _how = 'cursor' then array[r.lane_id] else '{}' end;
    _turns integer[];
    _lane_id integer;
    _priority integer;
    _is_first boolean;
    _taken integer;
begin
    if r.lanes = 1 then
        _turns := array[array[r.lane_id, r.priority, 1]];
    else
        _turns := penstock._lane_turns(r.queue_id, r.group_id, r.consumer, r.shards, r.trimmed_position);
    end if;
    for place in 1..coalesce(array_length(_turns, 1), 0) loop
        _lane_id := _turns[place][1];
        _priority := _turns[place][2];
        _is_first := _turns[place][3] = 1;
        if _is_first and (r.has_retries or r.own is not null) then
            return query select * from penstock._receive_waiting(r, q, _priority, _room);
            get diagnostics _taken = row_count;
            _room := _room - _taken;
            exit when _room = 0;
        end if;
        if r.lanes <> 1 then
            if _is_first and r.is_brief and penstock._lock_cursor(penstock._lane_key(r.group_id, _lane_id)) then
                _how := 'cursor';
            elsif _is_first then
                select * into _how, _others from penstock._enter_lane(r.group_id, _lane_id, r.is_brief, false);
                if _how is null then
                    _busy := _busy || _lane_id;
                    continue;
                end if;
            else
                continue when not _lane_id = any (_busy);
                exit when _room < r.most;
                select * into _how, _others from penstock._enter_lane(r.group_id, _lane_id, r.is_brief, true);
                exit when _how is null;
                _busy := array_remove(_busy, _lane_id);
                r.now := penstock.now_us();
                r.token := greatest(r.token, (extract(epoch from clock_timestamp()) * 1000000)::bigint);
                r.ends_at := r.now + round(r.lease_seconds * 1000000)::bigint;
            end if;
            if _how = 'cursor' then
                _entered := _entered || _lane_id;
            end if;
            r.fresh := penstock._current_snapshot();
            r.trimmed_position := (
                select u.trimmed_position from penstock.queue as u join penstock.group as o using (queue_id)
                where u.queue_id = r.queue_id and o.group_id = r.group_id
            );
            exit when r.trimmed_position is null;
            c := penstock._get_cursor(r.group_id, _lane_id);
            r.has_skips := exists (select 1 from penstock.skip where group_id = r.group_id);
        end if;
        if _how is null then
            _busy := _busy || _lane_id;
            exit;
        elsif _how <> 'cursor' then
            return query select * from penstock._receive_past_holder(
                r, _lane_id, _priority, _others, _room, _room = r.most, _how = 'locked'
            );
            get diagnostics _taken = row_count;
            if not r.is_brief then
                _entered := _entered || _lane_id;
            end if;
        else
            if c.number is null then
                c := penstock._get_cursor(r.group_id, _lane_id);
            end if;
            if c.token >= r.token then
                exit when _room < r.most;
                r.token := c.token + 1;
            end if;
            return query select * from penstock._receive_from_lane(r, q, g, c, _lane_id, _priority, _room);
            get diagnostics _taken = row_count;
        end if;
        _room := _room - _taken;
        exit when _room = 0;
    end loop;
    if _room > 0 and _busy = '{}' and (r.has_retries or r.own is not null) then
        return query select * from penstock._receive_waiting(r, q, 2147483647, _room);
        get diagnostics _taken = row_count;
        _room := _room - _taken;
    end if;
    if not r.is_brief then
        perform penstock._publish_receive(r.group_id, entered) from unnest(_entered) as entered;
    end if;
    return next penstock._token_row(case when _room < r.most then r.token else 0 end, r.group_name);
end
$$;

-- Receive from one lane by moving its cursor: the rest of its window, then the next window. With has_skips messages are
-- checked row by row.
create or replace function penstock._receive_from_lane(
    r penstock.receive_call, q penstock.queue, g penstock.group, c penstock.cursor, _lane_id integer, _priority integer,
    _room integer
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    _is_fresh boolean := false;
    _from xid8;
    _taken integer;
    one penstock.delivery_row;
begin
    if c.number = 0 then
        c.passed := (select trimmed from penstock.lane where lane_id = _lane_id);
        c.above := r.trimmed_position;
    end if;
    loop
        if not c.used_up then
            _taken := 0;
            _from := case when r.most = 1 and not r.has_skips then penstock._first_open_transaction(c) end;
            if r.has_skips then
                null;
            elsif penstock._count_transactions(_from, pg_snapshot_xmax(c.prev)) <= 100 then
                one := penstock._receive_one(r, c, _lane_id, _priority, _from);
                if one.position is not null then
                    return next one;
                    return;
                end if;
            else
                -- All in one statement, or none of them if one may end before its lease does or belongs to a batch.
                return query
                with taken as materialized (
                    select m.* from penstock._window_messages(_lane_id, c, r.trimmed_position) as m limit _room
                ),
                summed as materialized (
                    select count(*)::integer as n, min(position) as first, max(position) as last, sum(position)::bigint as checksum,
                        coalesce(bool_or(
                            batch_id is not null or (least(expires_at, deadline_at) <= r.ends_at) is true
                        ), true) as is_special
                    from taken
                ),
                shaped as materialized (
                    select s.n, s.first, s.last, s.checksum, (select t.tx from taken as t offset s.n - 1) as at_tx,
                        (select t.position from taken as t offset s.n - 1) as at_position,
                        case when s.last - s.first + 1 <> s.n
                            then (select range_agg(int8range(t.position, t.position + 1)) from taken as t)
                        end as positions
                    from summed as s
                    where not s.is_special
                ),
                moved as (
                    insert into penstock.cursor (
                        entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_position, used_up, above, passed, at,
                        token, checked_at, first, last, n, consumer, positions
                    )
                    select nextval('penstock.entry'), r.group_id, _lane_id, c.number + 1, pg_current_xact_id(), c.prev,
                        c.snap, s.at_tx, s.at_position, s.n < _room, c.above, c.passed + s.n, penstock.now_us(), r.token,
                        r.checked_at, s.first, s.last, s.n, r.consumer, s.positions
                    from shaped as s
                ),
                leased as (
                    insert into penstock.lease as e (
                        group_id, token, lane_id, ends_at, leased_at, first, last, n, checksum, consumer, positions
                    )
                    select r.group_id, r.token, _lane_id, r.ends_at, r.now, s.first, s.last, s.n, s.checksum, r.consumer,
                        coalesce(s.positions, int8multirange(int8range(s.first, s.last + 1)))
                    from shaped as s
                    on conflict (group_id, token, lane_id) do update
                    set first = least(e.first, excluded.first), last = greatest(e.last, excluded.last),
                        n = e.n + excluded.n, checksum = e.checksum + excluded.checksum,
                        positions = e.positions + excluded.positions
                )
                select t.position, t.created_at, t.id::text, t.content_type, t.headers, t.expires_at, t.deadline_at, t.address,
                    t.key,
                    case when t.batch_id is not null
                        then (select b.name from penstock.batch as b where b.batch_id = t.batch_id)
                    end,
                    t.created_by, t.payload, _priority, 1, r.ends_at
                from taken as t
                where not (select s.is_special from summed as s);
                get diagnostics _taken = row_count;
                if _taken > 0 then
                    c.number := c.number + 1;
                    c.passed := c.passed + _taken;
                    _room := _room - _taken;
                end if;
            end if;
            if _taken = 0 and (r.has_skips or exists (select 1 from penstock.checked_lane where lane_id = _lane_id)) then
                if q.queue_id is null then
                    select * into q from penstock.queue where queue_id = r.queue_id;
                    select * into g from penstock.group where group_id = r.group_id;
                    -- Deleted meanwhile: the lane is so new that the deletion has not locked it.
                    exit when q.queue_id is null or g.group_id is null;
                end if;
                return query select * from penstock._receive_checked(r, q, g, c, _lane_id, _priority, _room);
                get diagnostics _taken = row_count;
                _room := _room - _taken;
                c := penstock._get_cursor(r.group_id, _lane_id, c);
            end if;
            exit when _room = 0;
        end if;
        exit when _is_fresh;
        -- The window is used up: open the next. Comparing only the ends of snapshots would not do: a transaction between
        -- them may have ended.
        c.prev := c.snap;
        c.snap := r.fresh;
        exit when c.prev::text = c.snap::text;
        c.at_tx := '0';
        c.at_position := 0;
        c.above := 0;
        c.used_up := false;
        _is_fresh := true;
    end loop;
end
$$;

-- A transaction before which the window of a cursor has no messages: the first that was open in its one snapshot and has
-- ended in the other, or an earlier one that is near.
create or replace function penstock._first_open_transaction(c penstock.cursor) returns xid8
language plpgsql stable as $$
begin
    if penstock._count_transactions(pg_snapshot_xmin(c.prev), pg_snapshot_xmax(c.prev)) <= 100 then
        return pg_snapshot_xmin(c.prev);
    end if;
    return coalesce((
        select min(x::text::bigint)::text::xid8 from pg_snapshot_xip(c.prev) as x
        where x >= c.at_tx and pg_visible_in_snapshot(x, c.snap)
    ), pg_snapshot_xmax(c.prev));
end
$$;

-- Receive the next message of a cursor's window; null when there is none, or one that may end before its lease does or
-- belongs to a batch, which is left to the row by row receive.
create or replace function penstock._receive_one(
    r penstock.receive_call, c penstock.cursor, _lane_id integer, _priority integer, _from xid8
) returns penstock.delivery_row
language plpgsql as $$
declare
    _above bigint := greatest(c.above, r.trimmed_position);
    _upto xid8 := pg_snapshot_xmax(c.snap);
    _from_position bigint;
    _count integer := 0;
    one record;
    m record;
begin
    _from := greatest(c.at_tx, _from);
    _from_position := case when _from = c.at_tx then c.at_position else 0 end;
    -- One more is read: if there is none, the window is used up.
    for one in
        select l.position, l.tx, l.created_at, l.id, l.content_type, l.headers, l.expires_at, l.deadline_at, l.address, l.key,
            l.batch_id, l.created_by, l.payload
        from penstock.log as l
        where l.lane_id = _lane_id and (l.tx, l.position) > (_from, _from_position) and l.tx < _upto and l.position > _above
            and pg_visible_in_snapshot(l.tx, c.snap) and not pg_visible_in_snapshot(l.tx, c.prev)
        order by l.tx, l.position limit 2
    loop
        _count := _count + 1;
        if _count = 1 then
            m := one;
        end if;
    end loop;
    if _count = 0 then
        return null;
    elsif m.batch_id is not null or least(m.expires_at, m.deadline_at) <= r.ends_at then
        return null;
    end if;
    insert into penstock.cursor (
        entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_position, used_up, above, passed, at, token, checked_at,
        first, last, n, consumer
    ) values (
        nextval('penstock.entry'), r.group_id, _lane_id, c.number + 1, pg_current_xact_id(), c.prev, c.snap, m.tx, m.position,
        _count < 2, c.above, c.passed + 1,
        -- The current time, not the start of the call, which may precede the commit of the message.
        penstock.now_us(), r.token, r.checked_at, m.position, m.position, 1, r.consumer
    );
    insert into penstock.lease (
        group_id, token, lane_id, ends_at, leased_at, first, last, n, checksum, consumer, positions
    ) values (
        r.group_id, r.token, _lane_id, r.ends_at, r.now, m.position, m.position, 1, m.position, r.consumer,
        int8multirange(int8range(m.position, m.position + 1))
    );
    return row (
        m.position, m.created_at, m.id::text, m.content_type, m.headers, m.expires_at, m.deadline_at, m.address, m.key, null,
        m.created_by, m.payload, _priority, 1, r.ends_at
    )::penstock.delivery_row;
end
$$;

-- How many transaction numbers lie between two.
create or replace function penstock._count_transactions(_from xid8, _upto xid8) returns bigint
language sql immutable as $$
    select _upto::text::bigint - _from::text::bigint
$$;
