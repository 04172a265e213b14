-- One message of a queue, for callers who know it by its id or position and have no token: finding it, taking it though
-- it is not the next, and settling it in somebody's name.

create or replace function penstock._door_find(_queue_id integer, _id uuid) returns penstock.door_live
language plpgsql stable as $$
declare
    q penstock.queue;
    live penstock.door_live;
    place record;
begin
    select * into q from penstock.queue where queue_id = _queue_id;
    place := penstock._locate(q, _id);
    if place.seq is not null then
        return penstock._door_find_at(_queue_id, place.seq);
    elsif place.held_id is not null then
        select * into live from penstock.door_live as l where l.queue_id = _queue_id and l.seq is null and l.id = _id;
    end if;
    return live;
end
$$;

create or replace function penstock._door_find_at(_queue_id integer, _seq bigint) returns penstock.door_live
language plpgsql stable as $$
declare
    live penstock.door_live;
begin
    select * into live from penstock.door_live as l where l.queue_id = _queue_id and l.seq = _seq;
    return live;
end
$$;

-- ready -> leased for one message, wherever it is: the token, or null when it is not free. The cursor passes over it when
-- it comes there, or at once when it is the next.
create or replace function penstock._door_take(
    _queue_id integer, _seq bigint, _consumer text, _lease_seconds double precision
) returns bigint
language plpgsql as $$
declare
    _now bigint := penstock.now_us();
    q penstock.queue;
    g penstock.reader;
    m penstock.log;
    t penstock.tracked;
    lane record;
    _priority integer;
    _token bigint;
begin
    select null as how into lane;
    select * into q from penstock.queue where queue_id = _queue_id;
    if current_setting('transaction_isolation') <> 'read committed' or q.ordered then
        raise exception using errcode = 'PN200',
            message = format('one message of queue %s cannot be locked here', penstock._shown(q.name)),
            hint = 'It needs isolation level read committed, and a queue that is not ordered.';
    elsif q.paused then
        return null;
    end if;
    g := penstock._ensure_group(q, penstock._default_group(q));
    perform penstock._check_leasing(q, g);
    select n.priority into _priority
    from (select o.* from penstock.log as o where o.seq = _seq offset 0) as l join penstock.lane as n using (lane_id)
    where n.queue_id = _queue_id;
    select l.* into m
    from (select o.* from penstock.log as o where o.seq = _seq offset 0) as l join penstock.lane as n using (lane_id)
    where n.queue_id = _queue_id;
    perform penstock._reclaim(q, g, null, _now, 2147483647, 2147483647);
    _token := greatest(
        (extract(epoch from clock_timestamp()) * 1000000)::bigint,
        (select max(token) + 1 from penstock.tracked where group_id = g.group_id),
        (penstock._cursor(g.group_id, m.lane_id)).token + 1
    );
    select * into t from penstock.tracked where group_id = g.group_id and seq = _seq and state <> 'leased' for update;
    if found then
        if t.expires_at <= _now or (t.state = 'held' and t.until_at > _now) then
            return null;
        elsif t.state = 'held' then
            perform penstock._record(_queue_id, g.group_id, 'due', 'ready', _seq, 'system', null, t.attempt, null, _now);
        end if;
        perform penstock._take_retry(q, t, _consumer, _lease_seconds, _token, _now);
        return _token;
    end if;
    if m.tx is distinct from pg_current_xact_id_if_assigned() then
        select * into lane from penstock._enter_lane(g.group_id, m.lane_id, false, true);
        if lane.how is null or lane.others @> (_seq & 17592186044415)
            or not pg_try_advisory_xact_lock(penstock._message_key(g.group_id, _seq)) then
            return null;
        end if;
    end if;
    -- Looked for again, now that nobody else can take it.
    if (penstock._door_find_at(_queue_id, _seq)).state is distinct from 'ready'
        or penstock._end_event(q, m.expires_at, m.deadline_at, m.batch_id, _now) is not null then
        return null;
    end if;
    perform penstock._lease_ahead(q, g, m.lane_id, _priority, _seq, _consumer, _lease_seconds, _token, _now);
    if lane.how = 'cursor' then
        perform penstock._door_pass(q, g, m.lane_id, _consumer, _token, _now);
        perform penstock._publish(g.group_id, m.lane_id);
    end if;
    return _token;
end
$$;

-- Moves a cursor over what was taken out of turn, so that the notes about it stay few. The lane must be locked. It stops at
-- the first message that was not taken, so it must find them in the order of the index, whatever the statistics say.
create or replace function penstock._door_pass(
    q penstock.queue, g penstock.reader, _lane_id integer, _consumer text, _token bigint, _now bigint
) returns void
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    c penstock.claim := penstock._cursor(g.group_id, _lane_id);
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
            for m in select w.tx, w.seq from penstock._window(_lane_id, c, q.trimmed_position) as w loop
                delete from penstock.skip where group_id = g.group_id and seq = m.seq;
                if not found then
                    c.used_up := false;
                    exit;
                end if;
                c.at_tx := m.tx;
                c.at_seq := m.seq;
                _passed := _passed + 1;
            end loop;
            exit when not c.used_up;
        end if;
        exit when _is_fresh;
        c.prev := c.snap;
        c.snap := penstock._snapshot();
        exit when c.prev::text = c.snap::text;
        c.at_tx := '0';
        c.at_seq := 0;
        c.above := 0;
        c.used_up := false;
        _is_fresh := true;
    end loop;
    if _passed > 0 then
        perform penstock._claim(q, g, _lane_id, c, _passed, '{}', _consumer, _token, 0, _now);
    end if;
end
$$;

-- leased -> what the event leads to, in the name of somebody; false when the lease is over. The one who holds the lease
-- is not asked: callers check that where their conventions say so.
create or replace function penstock._door_settle(
    _queue_id integer, live penstock.door_live, _event text, _by text, _reason text, _delay double precision default null
) returns boolean
language plpgsql as $$
declare
    _now bigint := penstock.now_us();
    q penstock.queue;
    g penstock.reader;
    fl penstock.flight;
begin
    select * into q from penstock.queue where queue_id = _queue_id;
    g := penstock._get_group(q, penstock._default_group(q));
    fl := penstock._land(g.group_id, live.token, live.seq, _now);
    if fl.seq is null then
        return false;
    end if;
    fl.consumer := penstock._check_name('settled by', _by);
    if _event in ('failed', 'lease_expired') then
        perform penstock._end(
            q, g, fl, case _event when 'failed' then 'nak' else 'lease_end' end, _event, _by, _reason, fl.attempt,
            fl.token, true, _now
        );
    else
        perform penstock._conclude(q, g, fl, _event, _reason, _delay, _now);
    end if;
    return true;
end
$$;
