-- Removal of single messages by an operator.
--
-- Where a message is live it ends first, as cancelled and without a dead letter; then it is deleted from the log.

-- Keep everybody from receiving from the queue or creating a group of it until this transaction ends. Returns the queue
-- as it is then, null when it was deleted meanwhile.
create or replace function penstock._lock_queue(q penstock.queue) returns penstock.queue
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(penstock._groups_key(q.queue_id));
    perform penstock._lock_lanes(q, null);
    -- In the order in which a sweep takes them.
    perform 1 from penstock.lane where queue_id = q.queue_id order by lane_id for update;
    select * into q from penstock.queue where queue_id = q.queue_id for update;
    return q;
end
$$;

-- Remove messages in whatever state; returns how many existed. A window that is read again lacks them.
create or replace function penstock.remove(queue text, ids uuid[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue;
    place record;
    _id uuid;
    _positions bigint[] := '{}';
    _now bigint;
begin
    select * into q from penstock.queue where name = remove.queue;
    if not found then
        return 0;
    end if;
    q := penstock._lock_queue(q);
    if q.queue_id is null then
        return 0;
    end if;
    _now := penstock.now_us();
    for _id in select distinct one from unnest(remove.ids) as one order by one loop
        place := penstock._locate_message(q, _id);
        if place.held_id is not null then
            place.position := coalesce(
                penstock._remove_held(q, place.held_id, _now),
                -- It was due just now.
                (penstock._locate_message(q, _id)).position
            );
        end if;
        if place.position is not null then
            _positions := _positions || place.position;
            delete from penstock.compat_note as note using penstock.compat_schema as d
            where d.queue_id = q.queue_id and note.schema_id = d.schema_id and note.message_id = _id;
        end if;
    end loop;
    perform penstock._delete_trimmed_messages(q, _positions, false, _now);
    return cardinality(_positions);
end
$$;

-- held -> cancelled in every group. The message is appended to the log, from which it can be deleted. Null when it is
-- not held.
create or replace function penstock._remove_held(q penstock.queue, _held_id bigint, _now bigint) returns bigint
language plpgsql as $$
declare
    h penstock.held;
    msg penstock.message_row;
begin
    delete from penstock.held where held_id = _held_id returning * into h;
    if not found then
        return null;
    end if;
    msg := penstock._append_held(q, h, -1 - h.priority);
    perform penstock._record_audit(
        q.queue_id, null, 'remove', 'cancelled', msg.position, 'system', penstock._default_reason('remove'), 0, null, _now
    );
    perform penstock._free_addresses_and_batches(
        q.queue_id, int8multirange(int8range(msg.position, msg.position + 1)), 'cancelled', penstock._default_reason('remove'), _now
    );
    return msg.position;
end
$$;

-- Record that messages between two places were deleted, for readers of windows. The queue must be locked.
create or replace function penstock._record_removal(
    _queue_id integer, _first_tx xid8, _first_position bigint, _last_tx xid8, _last_position bigint
) returns void
language sql as $$
    with told as (
        update penstock.queue set removals = removals + 1 where queue_id = _queue_id returning removals
    )
    insert into penstock.removal (queue_id, number, first_tx, first_position, last_tx, last_position)
    select _queue_id, removals, _first_tx, _first_position, _last_tx, _last_position from told
$$;

-- live -> cancelled in one group for messages of one lane. Returns how many its cursor has not passed. The lane must be
-- locked.
create or replace function penstock._cancel_live(
    q penstock.queue, g penstock.group, n penstock.lane, _position_array bigint[], _now bigint
) returns integer
language plpgsql as $$
declare
    c penstock.cursor;
    e penstock.lease;
    _positions int8multirange := (select range_agg(int8range(one, one + 1)) from unnest(_position_array) as one);
    _part int8multirange;
    _unread bigint[] := '{}';
begin
    if _position_array = '{}' then
        return 0;
    end if;
    perform penstock._cancel_tracked(q, g, _position_array, _now);
    for e in
        select * from penstock.lease as l
        where l.group_id = g.group_id and l.lane_id = n.lane_id and l.positions && _positions
        order by l.token
        for update
    loop
        _part := e.positions * _positions;
        perform penstock._remove_from_lease(e, _part, penstock._list_positions(_part));
        perform penstock._cancel_messages(q, g, _part, 1, _now);
    end loop;
    if n.priority >= 0 then
        c := penstock._get_cursor(g.group_id, n.lane_id);
        _unread := array(
            select m.position from penstock.log as m
            where m.lane_id = n.lane_id and m.position = any (_position_array)
                and not penstock._is_behind_cursor(c, m.tx, m.position, q.trimmed_position)
        );
        select range_agg(int8range(one, one + 1)) into _part
        from unnest(_unread) as one
        where not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.position = one);
        if _part is not null then
            perform penstock._cancel_messages(q, g, _part, 0, _now);
        end if;
    end if;
    delete from penstock.skip where group_id = g.group_id and position = any (_position_array);
    return cardinality(_unread);
end
$$;

-- live -> cancelled for messages that a group tracks one by one.
create or replace function penstock._cancel_tracked(
    q penstock.queue, g penstock.group, _positions bigint[], _now bigint
) returns void
language plpgsql as $$
declare
    t penstock.tracked;
begin
    for t in delete from penstock.tracked where group_id = g.group_id and position = any (_positions) returning * loop
        perform penstock._end_message(
            q, g, penstock._tracked_row(t), 'remove', 'cancelled', 'system', null, t.attempt, null, false, _now
        );
    end loop;
end
$$;

-- Record that messages were cancelled in a group by their removal.
create or replace function penstock._cancel_messages(
    q penstock.queue, g penstock.group, _positions int8multirange, _attempt integer, _now bigint
) returns void
language plpgsql as $$
declare
    _first bigint := lower(_positions);
    _last bigint := upper(_positions) - 1;
    _n integer := cardinality(penstock._list_positions(_positions));
begin
    perform penstock._record_audit(
        q.queue_id, g.group_id, 'remove', 'cancelled', _first, 'system', penstock._default_reason('remove'), _attempt, null,
        _now, null, _last, _n, _positions
    );
    if g.name is not distinct from q.primary_group then
        perform penstock._free_addresses_and_batches(q.queue_id, _positions, 'cancelled', penstock._default_reason('remove'), _now);
    end if;
end
$$;

-- Add to the number of messages that a cursor has passed. A cursor that has not begun starts at the beginning of the
-- log.
create or replace function penstock._count_passed(
    g penstock.group, n penstock.lane, _more integer, _now bigint
) returns void
language plpgsql as $$
declare
    c penstock.cursor := penstock._get_cursor(g.group_id, n.lane_id);
begin
    if _more <> 0 and c.number > 0 and n.priority >= 0 then
        perform penstock._move_cursor(g.group_id, n.lane_id, c, _more, '{}', null, c.token, 0, _now);
    end if;
end
$$;

-- Make any message ready in a group, out of order: unread or passed, waiting for a retry, or ended. False when it has
-- expired or is in flight. The lanes of the group must be locked.
create or replace function penstock._force_ready(q penstock.queue, g penstock.group, _position bigint, _now bigint) returns boolean
language plpgsql as $$
declare
    t penstock.tracked;
    m penstock.log;
    _priority integer;
    _outcome text;
begin
    select * into t from penstock.tracked where group_id = g.group_id and position = _position for update;
    if found then
        if t.state = 'held' then
            update penstock.tracked set state = 'ready' where group_id = g.group_id and position = _position;
            perform penstock._record_audit(
                q.queue_id, g.group_id, 'due', 'ready', _position, 'system', null, t.attempt, null, _now
            );
        end if;
        return t.state <> 'leased';
    end if;
    select l.* into m
    from (select o.* from penstock.log as o where o.position = _position offset 0) as l join penstock.lane as n using (lane_id)
    where n.queue_id = q.queue_id and n.priority >= 0 and l.position > q.trimmed_position
        and (l.expires_at is null or l.expires_at > _now);
    if not found or exists (
        select 1 from penstock.lease as e
        where e.group_id = g.group_id and e.lane_id = m.lane_id and e.positions @> _position
    ) then
        return false;
    end if;
    _outcome := (penstock._last_entry(q.queue_id, g.group_id, m.lane_id, _position)).state;
    if _outcome not in ('held', 'ready', 'leased') then
        perform penstock._record_audit(
            q.queue_id, g.group_id, 'seek', 'ready', _position, 'system', 'claimed by force', 0, null, _now
        );
        perform penstock._subtract_outcomes(g.group_id, _outcome, 1);
        delete from penstock.dead_letter where group_id = g.group_id and position = _position;
    end if;
    if not penstock._is_behind_cursor(
        penstock._get_cursor(g.group_id, m.lane_id), m.tx, m.position, q.trimmed_position
    ) then
        insert into penstock.skip (group_id, position) values (g.group_id, _position) on conflict do nothing;
    end if;
    select priority into _priority from penstock.lane where lane_id = m.lane_id;
    perform penstock._track_message(g.group_id, penstock._log_row(m, _priority, 0, null), 'ready', 0, _now, null);
    return true;
end
$$;
