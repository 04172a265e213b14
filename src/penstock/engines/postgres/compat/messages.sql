-- Single messages for callers that know them by id or position and have no token: finding, leasing out of order, and
-- settling in somebody's name.

-- Validate the name of a sender or settler, which may be any text in the conventions, even an empty one.
create or replace function penstock._check_free_name(_kind text, _who text) returns text
language plpgsql immutable as $$
begin
    if length(_who) > 255 then
        raise exception using errcode = 'PN101',
            message = format('%s %s has %s characters: at most 255', _kind, penstock._quote_value(_who), length(_who));
    end if;
    return _who;
end
$$;

create or replace function penstock._compat_find(_queue_id integer, _id uuid) returns penstock.compat_live
language plpgsql stable as $$
declare
    q penstock.queue;
    live penstock.compat_live;
    place record;
begin
    select * into q from penstock.queue where queue_id = _queue_id;
    place := penstock._locate_message(q, _id);
    if place.position is not null then
        return penstock._compat_find_at(_queue_id, place.position);
    elsif place.held_id is not null then
        select * into live from penstock.compat_live as l where l.queue_id = _queue_id and l.position is null and l.id = _id;
    end if;
    return live;
end
$$;

create or replace function penstock._compat_find_at(_queue_id integer, _position bigint) returns penstock.compat_live
language plpgsql stable as $$
declare
    live penstock.compat_live;
begin
    select * into live from penstock.compat_live as l where l.queue_id = _queue_id and l.position = _position;
    return live;
end
$$;

-- ready -> leased for one message out of order: the token, or null when it is not free.
create or replace function penstock._compat_lease(
    _queue_id integer, _position bigint, _consumer text, _lease_seconds double precision
) returns bigint
language sql as $$
    select case when one.taken = array[_position] then one.token end
    from penstock._compat_lease_all(_queue_id, array[_position], _consumer, _lease_seconds) as one
$$;

-- ready -> leased for several messages in one lease: those that were free, and their token. Cursors skip them later, or
-- pass at once over those that are next. A lane is entered once for all its messages: whoever may move its cursor needs
-- no lock for each of them.
create or replace function penstock._compat_lease_all(
    _queue_id integer, _positions bigint[], _consumer text, _lease_seconds double precision,
    out token bigint, out taken bigint[]
)
language plpgsql as $$
declare
    q penstock.queue;
    g penstock.group;
    r penstock.receive_call;
    one record;
    lane record;
    _lane_id integer;
begin
    taken := '{}';
    select null as how into lane;
    select * into q from penstock.queue where queue_id = _queue_id;
    if current_setting('transaction_isolation') <> 'read committed' or q.ordered then
        raise exception using errcode = 'PN200',
            message = format('one message of queue %s cannot be locked here', penstock._quote_value(q.name)),
            hint = 'It needs isolation level read committed, and a queue that is not ordered.';
    elsif q.paused then
        return;
    end if;
    g := penstock._ensure_group(q, penstock._default_group(q));
    perform penstock._refuse_stream_group(q, g);
    r.queue_id := _queue_id;
    r.group_id := g.group_id;
    r.consumer := _consumer;
    r.lease_seconds := _lease_seconds;
    r.now := penstock.now_us();
    perform penstock._reclaim_leases(q, g, null, r.now, 2147483647, 2147483647);
    token := greatest(
        (extract(epoch from clock_timestamp()) * 1000000)::bigint,
        (select max(t.token) + 1 from penstock.tracked as t where t.group_id = g.group_id),
        (
            select max((penstock._get_cursor(g.group_id, n.lane_id)).token) + 1
            from penstock.lane as n where n.queue_id = _queue_id
        )
    );
    r.token := token;
    for one in
        select s.position, l.lane_id, l.tx
        from unnest(_positions) as s (position)
        left join lateral (
            select o.lane_id, o.tx from (select * from penstock.log where position = s.position offset 0) as o
            join penstock.lane as n using (lane_id) where n.queue_id = _queue_id
        ) as l on true
        order by l.lane_id, s.position
    loop
        if penstock._compat_lease_retry(r, one.position) then
            taken := taken || one.position;
            continue;
        elsif one.lane_id is null then
            continue;
        elsif one.tx is distinct from pg_current_xact_id_if_assigned() then
            if one.lane_id is distinct from _lane_id then
                perform penstock._compat_leave_lane(r, q, g, _lane_id, lane.how);
                _lane_id := one.lane_id;
                select * into lane from penstock._enter_lane(g.group_id, _lane_id, false, true);
            end if;
            continue when lane.how is null or lane.others @> (one.position & 17592186044415)
                or lane.how <> 'cursor' and not pg_try_advisory_xact_lock(penstock._message_key(g.group_id, one.position));
        end if;
        if penstock._compat_lease_unread(r, q, one.lane_id, one.position) then
            taken := taken || one.position;
        end if;
    end loop;
    perform penstock._compat_leave_lane(r, q, g, _lane_id, lane.how);
end
$$;

-- Lease a message that waits for a retry, if it is due.
create or replace function penstock._compat_lease_retry(r penstock.receive_call, _position bigint) returns boolean
language plpgsql as $$
declare
    t penstock.tracked;
begin
    select * into t from penstock.tracked
    where group_id = r.group_id and position = _position and state <> 'leased' for update;
    if not found or t.expires_at <= r.now or (t.state = 'held' and t.until_at > r.now) then
        return false;
    elsif t.state = 'held' then
        perform penstock._record_audit(
            r.queue_id, r.group_id, 'due', 'ready', _position, 'system', null, t.attempt, null, r.now
        );
    end if;
    perform penstock._lease_retry(r, t);
    return true;
end
$$;

-- Lease a message ahead of the cursor, if it is still free now that nobody else can lease it.
create or replace function penstock._compat_lease_unread(
    r penstock.receive_call, q penstock.queue, _lane_id integer, _position bigint
) returns boolean
language plpgsql as $$
declare
    m penstock.log;
begin
    select * into m from penstock.log where position = _position and lane_id = _lane_id;
    if (penstock._compat_find_at(q.queue_id, _position)).state is distinct from 'ready'
        or penstock._expiry_event(q, m.expires_at, m.deadline_at, m.batch_id, r.now) is not null then
        return false;
    end if;
    perform penstock._lease_ahead(r, _lane_id, (select priority from penstock.lane where lane_id = _lane_id), _position);
    return true;
end
$$;

-- Leave a lane: the holder of its lock moves the cursor over what was leased, and publishes it.
create or replace function penstock._compat_leave_lane(
    r penstock.receive_call, q penstock.queue, g penstock.group, _lane_id integer, _how text
) returns void
language plpgsql as $$
begin
    if _how in ('cursor', 'locked') then
        perform penstock._pass_leased_messages(q, g, _lane_id, r.consumer, r.token, r.now);
    end if;
    if _how is not null then
        perform penstock._publish_receive(g.group_id, _lane_id);
    end if;
end
$$;

-- Move a cursor over messages that were leased ahead of it, so that few skips remain. The lane must be locked. It stops
-- at the first message that was not leased, so it must read them in index order, whatever the statistics say.
create or replace function penstock._pass_leased_messages(
    q penstock.queue, g penstock.group, _lane_id integer, _consumer text, _token bigint, _now bigint
) returns void
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    c penstock.cursor := penstock._get_cursor(g.group_id, _lane_id);
    m record;
    _passed integer := 0;
    _is_fresh boolean := false;
begin
    if c.number = 0 then
        c.passed := (select trimmed from penstock.lane where lane_id = _lane_id);
        c.above := q.trimmed_position;
    end if;
    loop
        if not c.used_up then
            c.used_up := true;
            for m in select w.tx, w.position from penstock._window_messages(_lane_id, c, q.trimmed_position) as w loop
                delete from penstock.skip where group_id = g.group_id and position = m.position;
                if not found then
                    c.used_up := false;
                    exit;
                end if;
                c.at_tx := m.tx;
                c.at_position := m.position;
                _passed := _passed + 1;
            end loop;
            exit when not c.used_up;
        end if;
        exit when _is_fresh;
        c.prev := c.snap;
        c.snap := penstock._current_snapshot();
        exit when c.prev::text = c.snap::text;
        c.at_tx := '0';
        c.at_position := 0;
        c.above := 0;
        c.used_up := false;
        _is_fresh := true;
    end loop;
    if _passed > 0 then
        perform penstock._move_cursor(g.group_id, _lane_id, c, _passed, '{}', _consumer, _token, 0, _now);
    end if;
end
$$;

-- Apply an event to a leased message in somebody's name; false when the lease was lost. The holder of the lease is not
-- checked: callers do where their convention demands it. With _also_late a lapsed lease counts until it was reclaimed.
create or replace function penstock._compat_settle(
    _queue_id integer, live penstock.compat_live, _event text, _by text, _reason text,
    _delay double precision default null, _also_late boolean default false
) returns boolean
language plpgsql as $$
declare
    _now bigint := penstock.now_us();
    q penstock.queue;
    g penstock.group;
    msg penstock.message_row;
begin
    select * into q from penstock.queue where queue_id = _queue_id;
    g := penstock._get_group(q, penstock._default_group(q));
    msg := penstock._take_from_lease(g.group_id, live.token, live.position, case when _also_late then 0 else _now end);
    if msg.position is null then
        return false;
    end if;
    msg.consumer := penstock._check_free_name('settled by', _by);
    if _event in ('failed', 'lease_expired') then
        perform penstock._end_message(
            q, g, msg, case _event when 'failed' then 'nak' else 'lease_end' end, _event, _by, _reason, msg.attempt,
            msg.token, true, _now
        );
    else
        perform penstock._apply_event(q, g, msg, _event, _reason, _delay, _now);
    end if;
    return true;
end
$$;
