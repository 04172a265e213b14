-- Overtakers: receives ahead of a transaction that holds the cursor of a lane and stays open. See lane_locks.sql.

-- Lease unread messages of a lane one by one, ahead of the cursor, because another transaction holds it, without the
-- positions that others have published. At most 100, as each needs a lock, and fewer when the transaction has used its
-- share of locks. Messages that were leased this way before are not scanned every time: the scan starts at a recorded
-- place behind which nothing is left. The place lies some hundred messages behind the first that may be leased, because
-- positions published there belong to transactions that stay open for long, and the end of each invalidates the record.
create or replace function penstock._receive_ahead(
    r penstock.receive_call, q penstock.queue, _lane_id integer, _priority integer, _others int8multirange, _room integer
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    _distance constant integer := 250;
    start penstock.overtaken := penstock._overtaken_place(q, r.group_id, _lane_id, _others);
    place penstock.overtaken := start;
    nearer penstock.overtaken;
    farther penstock.overtaken;
    c penstock.cursor;
    m record;
    _most integer := least(_room, 100, penstock._free_locks());
    _count integer := 0;
    _passed integer := 0;
    _is_whole boolean := true;
begin
    for _pass in 1..2 loop
        if _pass = 2 then
            place.prev := place.snap;
            place.snap := penstock._current_snapshot();
            place.at_tx := '0';
            place.at_position := 0;
            place.above := 0;
        end if;
        continue when place.is_used_up and _pass = 1;
        c.prev := place.prev;
        c.snap := place.snap;
        c.at_tx := place.at_tx;
        c.at_position := place.at_position;
        c.above := place.above;
        for m in
            select w.tx, w.position, w.position & 17592186044415 as low,
                exists (select 1 from penstock.skip as s where s.group_id = r.group_id and s.position = w.position)
                    or penstock._expiry_event(q, w.expires_at, w.deadline_at, w.batch_id, r.now) is not null as is_over
            from penstock._window_messages(_lane_id, c, q.trimmed_position) as w
        loop
            if m.is_over or _others @> m.low then
                if _is_whole then
                    place.at_tx := m.tx;
                    place.at_position := m.position;
                    if not m.is_over then
                        place.published := place.published + int8multirange(int8range(m.low, m.low + 1));
                    end if;
                    _passed := _passed + 1;
                    if _passed % _distance = 0 then
                        farther := nearer;
                        nearer := place;
                    end if;
                end if;
                continue;
            end if;
            _is_whole := false;
            exit when _count >= _most;
            continue when not pg_try_advisory_xact_lock(penstock._message_key(r.group_id, m.position));
            -- Looked at again, now that nobody else can take it: somebody may have, and committed.
            continue when exists (select 1 from penstock.skip as s where s.group_id = r.group_id and s.position = m.position)
                or penstock._is_behind_cursor(penstock._get_cursor(r.group_id, _lane_id), m.tx, m.position, q.trimmed_position);
            return next penstock._lease_ahead(r, _lane_id, _priority, m.position);
            _count := _count + 1;
            exit when _count = _most;
        end loop;
        exit when _count = _most;
    end loop;
    if farther.number is not null then
        perform penstock._record_overtaken(farther);
    end if;
end
$$;

-- How many more message locks this transaction may take: the lock table is shared by all sessions, and one transaction
-- may use a quarter of it.
create or replace function penstock._free_locks() returns integer
language sql volatile as $$
    select greatest(0, (
        current_setting('max_locks_per_transaction')::integer
            * (current_setting('max_connections')::integer + current_setting('max_prepared_transactions')::integer) / 4
        - (select count(*) from penstock._receive_locks() as l where l.pid = pg_backend_pid())
    ))::integer
$$;

-- The last recorded place in a lane behind which a group has nothing to lease; else its cursor.
create or replace function penstock._overtaken_place(
    q penstock.queue, _group_id integer, _lane_id integer, _others int8multirange
) returns penstock.overtaken
language plpgsql as $$
declare
    c penstock.cursor := penstock._get_cursor(_group_id, _lane_id);
    place penstock.overtaken;
begin
    select * into place from penstock.overtaken as one
    where one.group_id = _group_id and one.lane_id = _lane_id and one.number = c.number and one.published <@ _others
    order by one.note_id desc limit 1;
    if not found then
        place := row (
            0, _group_id, _lane_id, c.number, '{}', c.prev, c.snap, c.at_tx, c.at_position,
            case when c.number = 0 then q.trimmed_position else c.above end, c.used_up
        );
    end if;
    return place;
end
$$;

-- Record that nothing is left to lease behind a place. Earlier records are deleted, unless another transaction is
-- deleting them.
create or replace function penstock._record_overtaken(place penstock.overtaken) returns void
language plpgsql as $$
begin
    delete from penstock.overtaken where note_id in (
        select o.note_id from penstock.overtaken as o
        where o.group_id = place.group_id and o.lane_id = place.lane_id
        for update skip locked
    );
    insert into penstock.overtaken (group_id, lane_id, number, published, prev, snap, at_tx, at_position, above)
    select place.group_id, place.lane_id, place.number, place.published, place.prev, place.snap, place.at_tx, place.at_position,
        place.above;
end
$$;

-- Receive ahead of the cursor; when everything is leased by another transaction, wait for it briefly and try again. The
-- holder of the lane's lock moves the cursor over what was leased one by one.
create or replace function penstock._receive_past_holder(
    r penstock.receive_call, _lane_id integer, _priority integer, _others int8multirange, _room integer, _waits boolean,
    _has_lock boolean
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    q penstock.queue;
    g penstock.group;
begin
    select * into q from penstock.queue where queue_id = r.queue_id;
    select * into g from penstock.group where group_id = r.group_id;
    if q.queue_id is null or g.group_id is null then
        -- The queue was deleted, or the group removed, meanwhile.
        return;
    end if;
    return query select * from penstock._receive_ahead(r, q, _lane_id, _priority, _others, _room);
    if not found and _waits and not _has_lock and _others <> '{}'
        and penstock._wait_for_lock(penstock._lane_key(r.group_id, _lane_id), '100ms') then
        perform penstock._publish_receive(r.group_id, _lane_id);
        _has_lock := true;
        r.now := penstock.now_us();
        return query select * from penstock._receive_ahead(
            r, q, _lane_id, _priority, penstock._published_positions(r.group_id, _lane_id), _room
        );
    end if;
    if _has_lock then
        perform penstock._pass_leased_messages(
            q, g, _lane_id, r.consumer, greatest(r.token, (penstock._get_cursor(r.group_id, _lane_id)).token), r.now
        );
    end if;
end
$$;
