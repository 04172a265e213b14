-- Counts of a queue in one snapshot: the counts that sweeps fold, plus later rows.

-- Microseconds until a receive could return something: 0 for now, null for not before something is committed.
create or replace function penstock.ready_in(_queue text, _group text) returns bigint
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    q penstock.queue;
    _group_id integer;
    _busy integer[] := '{}';
    _due_at bigint;
begin
    select * into q from penstock.queue where name = _queue;
    if not found or q.paused then
        return null;
    end if;
    select group_id into _group_id from penstock.group
    where queue_id = q.queue_id and name = coalesce(_group, penstock._default_group(q));
    _group_id := coalesce(_group_id, -1);
    if q.ordered then
        _busy := array(
            select penstock._busy_shards(_group_id)
            union
            select n.shard from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = _group_id and t.state = 'held'
        );
    end if;
    if exists (
        select 1 from penstock.tracked as t join penstock.lane as n using (lane_id)
        where t.group_id = _group_id and t.state = 'ready' and not n.shard = any (_busy)
    ) or exists (
        select 1 from penstock.lane as n
        where n.queue_id = q.queue_id and n.priority >= 0 and not n.shard = any (_busy)
            and penstock._has_unread(_group_id, n.lane_id, q.trimmed_position)
    ) then
        return 0;
    end if;
    select least(
        (select min(available_at) from penstock.held where queue_id = q.queue_id and not waiting),
        (select min(until_at) from penstock.tracked where group_id = _group_id and state = 'held'),
        (select min(until_at) from penstock.tracked where group_id = _group_id and state = 'leased'),
        (select min(ends_at) from penstock.lease where group_id = _group_id)
    ) into _due_at;
    -- greatest() leaves nulls out: when nothing will come, the answer is null and not 0.
    return case when _due_at is not null then greatest(0, _due_at - penstock.now_us()) end;
end
$$;

-- How many messages were ever sent to a lane: the folded count and those since. The offset keeps a planner without
-- statistics from comparing the whole lane with the few transactions that were open.
create or replace function penstock._count_sent(n penstock.lane) returns bigint
language sql stable as $$
    select n.sent
        + (select count(*) from penstock.log as m where m.lane_id = n.lane_id and m.tx >= pg_snapshot_xmax(n.counted))
        + (
            select count(*) from pg_snapshot_xip(n.counted) as o (x)
            cross join lateral (
                select from penstock.log as m where m.lane_id = n.lane_id and m.tx = o.x offset 0
            ) as open
        )
$$;

-- The last position that a group has read or was moved past.
create or replace function penstock.reached(_queue text, _group text) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(max(greatest(c.at_position, c.last, c.above)), 0)
    from penstock.queue as q
    join penstock.group as g on g.queue_id = q.queue_id and g.name = _group
    join penstock.lane as l on l.queue_id = q.queue_id
    cross join lateral penstock._get_cursor(g.group_id, l.lane_id) as c
    where q.name = _queue
$$;

-- For each group that receives, the position behind which its unread messages lie. Sends commit out of order, so the
-- first one in transaction order need not have the least position: all unread ones are read, from the index alone.
create or replace function penstock.unread_after(_queue text) returns table (group_name text, "position" bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    q penstock.queue;
    g penstock.group;
    n penstock.lane;
    c penstock.cursor;
    _first bigint;
    _least bigint;
begin
    select * into q from penstock.queue as one where one.name = _queue;
    for g in select * from penstock.group as r where r.queue_id = q.queue_id and r.stream_mark is null loop
        _least := null;
        for n in select * from penstock.lane as l where l.queue_id = q.queue_id and l.priority >= 0 loop
            c := penstock._get_cursor(g.group_id, n.lane_id);
            select min(unread.position) into _first from (
                select m.position from penstock.log as m
                where m.lane_id = n.lane_id and m.position > q.trimmed_position
                    and m.tx >= case when c.used_up then pg_snapshot_xmin(c.snap)
                        else least(c.at_tx, pg_snapshot_xmin(c.snap)) end
                    and not penstock._is_behind_cursor(c, m.tx, m.position, q.trimmed_position)
                offset 0
            ) as unread;
            _least := least(_least, _first);
        end loop;
        group_name := g.name;
        "position" := coalesce(_least - 1, penstock._last_position());
        return next;
    end loop;
end
$$;

-- How many messages of the queue's log a group has not read: sent ones without those behind its cursor. On a busy queue
-- that would count everything since the last sweep; a group that keeps up has fewer messages before it.
create or replace function penstock._count_unread(q penstock.queue, _group_id integer) returns bigint
language plpgsql stable as $$
declare
    n penstock.lane;
    c penstock.cursor;
    _since bigint;
    _unread bigint;
    _lag bigint := 0;
begin
    for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
        c := penstock._get_cursor(_group_id, n.lane_id);
        _unread := null;
        select count(*) into _since from (
            select from penstock.log as m where m.lane_id = n.lane_id and m.tx >= pg_snapshot_xmax(n.counted) limit 100
        ) as one;
        if _since = 100 then
            select count(*) into _unread from penstock._unread_messages(n.lane_id, c, q.trimmed_position, 1000);
        end if;
        if _unread is null or _unread >= 1000 then
            _unread := penstock._count_sent(n) - case when c.number = 0 then n.trimmed else c.passed end;
        end if;
        _lag := _lag + _unread;
    end loop;
    return _lag;
end
$$;

-- The counts of every group, in one snapshot and without reading messages. endings and failed_attempts are monotonic.
create or replace function penstock.stats(queue text)
returns table (
    group_name text, total bigint, in_progress bigint, redo bigint, done bigint, available bigint, held bigint,
    dead bigint, consumers bigint, oldest_age_seconds double precision, lag bigint, outcomes jsonb, endings jsonb,
    failed_attempts bigint
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue;
    g penstock.group;
    _held bigint;
    _every bigint;
    _unread bigint;
    _ended record;
    _backing_off bigint;
    _oldest bigint;
begin
    select * into q from penstock.queue where name = stats.queue;
    if not found then
        return;
    end if;
    select count(*) into _held from penstock.held as h where h.queue_id = q.queue_id;
    for g in select * from penstock.group as r where r.queue_id = q.queue_id order by r.name loop
        group_name := g.name;
        select * into _ended from penstock._count_outcomes(g);
        outcomes := to_jsonb(_ended) - '{failed_attempts,own_entries,entries}'::text[];
        endings := jsonb_build_object(
            'succeeded', _ended.succeeded + g.undone_succeeded, 'rejected', _ended.rejected + g.undone_rejected,
            'failed', _ended.failed + g.undone_failed,
            'lease_expired', _ended.lease_expired + g.undone_lease_expired,
            'expired', _ended.expired + g.undone_expired, 'cancelled', _ended.cancelled + g.undone_cancelled
        );
        failed_attempts := _ended.failed_attempts;
        if g.stream_mark is not null then
            select coalesce(sum(penstock._count_sent(n) - n.trimmed), 0) into _every
            from penstock.lane as n where n.queue_id = q.queue_id and n.priority >= 0;
            lag := case when g.stream_table = 'messages' then penstock._count_beyond(q, g.stream_mark)
                else penstock._count_ended(q, g.stream_mark) end;
            in_progress := 0;
            redo := 0;
            dead := 0;
            consumers := 0;
            available := lag;
            done := _every - lag;
            held := _held;
            total := _every + _held;
            oldest_age_seconds := null;
            return next;
            continue;
        end if;
        _unread := penstock._count_unread(q, g.group_id);
        select coalesce(sum(e.n), 0) into in_progress from penstock.lease as e where e.group_id = g.group_id;
        select in_progress + count(*) filter (where t.state = 'leased'), count(*) filter (where t.state = 'ready'),
            count(*) filter (where t.state = 'held')
        into in_progress, redo, _backing_off
        from penstock.tracked as t where t.group_id = g.group_id;
        select g.dead + coalesce(sum(c.n), 0) into dead from penstock.dead_change as c where c.group_id = g.group_id;
        select count(*) into consumers from penstock.consumer as c where c.group_id = g.group_id;
        available := _unread - (select count(*) from penstock.skip as s where s.group_id = g.group_id);
        lag := available;
        held := _held + _backing_off;
        done := _ended.succeeded;
        total := held + available + redo + in_progress + done + dead;
        oldest_age_seconds := null;
        if available > 0 or redo > 0 then
            -- Since a message was sent or came due, or its retry came due.
            select min(one.ready_at) into _oldest from (
                select first.ready_at
                from penstock.lane as n
                cross join lateral (
                    select coalesce(m.available_at, m.created_at) as ready_at from penstock._unread_messages(
                        n.lane_id, penstock._get_cursor(g.group_id, n.lane_id), q.trimmed_position, 1
                    ) as m
                ) as first
                where n.queue_id = q.queue_id and n.priority >= 0
                union all
                select t.until_at from penstock.tracked as t where t.group_id = g.group_id and t.state = 'ready'
            ) as one;
            oldest_age_seconds := greatest(0, penstock.now_us() - _oldest) / 1000000.0;
        end if;
        return next;
    end loop;
end
$$;

-- Audit entries of the queue of a group since the group was counted, by transaction. The offset keeps a planner without
-- statistics from walking all positions.
create or replace function penstock._audit_since(g penstock.group)
returns table (n bigint, event text, state text, group_id integer, tx xid8)
language sql stable as $$
    select s.n::bigint, s.event, s.state, s.group_id, s.tx
    from (
        (
            select * from penstock.audit as late
            where late.queue_id = g.queue_id and late.tx >= pg_snapshot_xmax(g.counted)
            offset 0
        )
        union all
        select open.*
        from pg_snapshot_xip(g.counted) as o (x)
        cross join lateral (
            select * from penstock.audit as one where one.queue_id = g.queue_id and one.tx = o.x offset 0
        ) as open
    ) as s
    where s.first > 0
$$;

-- Outcomes and failed attempts in a group: the folded counts and those since, up to a snapshot. An event that ends an
-- attempt without success is a failed attempt. Also how many entries since are the group's own, and how many there are.
create or replace function penstock._count_outcomes(
    g penstock.group, _snap pg_snapshot default null, out succeeded bigint, out rejected bigint, out failed bigint,
    out lease_expired bigint, out expired bigint, out cancelled bigint, out failed_attempts bigint,
    out own_entries bigint, out entries bigint
)
language sql stable as $$
    select g.succeeded + coalesce(sum(s.n) filter (where s.state = 'succeeded'), 0),
        g.rejected + coalesce(sum(s.n) filter (where s.state = 'rejected'), 0),
        g.failed + coalesce(sum(s.n) filter (where s.state = 'failed'), 0),
        g.lease_expired + coalesce(sum(s.n) filter (where s.state = 'lease_expired'), 0),
        g.expired + coalesce(sum(s.n) filter (where s.state = 'expired'), 0),
        g.cancelled + coalesce(sum(s.n) filter (where s.state = 'cancelled'), 0),
        g.failed_attempts + coalesce(sum(s.n) filter (where s.event in ('nak', 'reject', 'lease_end')), 0),
        count(s.n), count(*)
    from (
        select case when one.group_id is null or one.group_id = g.group_id then one.n end as n, one.event, one.state
        from penstock._audit_since(g) as one
        where _snap is null or pg_visible_in_snapshot(one.tx, _snap)
    ) as s
$$;

-- How many messages a queue holds, in whatever state.
create or replace function penstock.message_count(_queue text) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
    select coalesce((
        select sum(penstock._count_sent(n) - n.trimmed) from penstock.queue as q join penstock.lane as n using (queue_id)
        where q.name = _queue
    ), 0)::bigint + (
        select count(*) from penstock.queue as q join penstock.held as h using (queue_id) where q.name = _queue
    )
$$;

-- How many messages a group that does not exist yet could receive.
create or replace function penstock.unread(_queue text) returns bigint
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    q penstock.queue;
    -- Read once: a volatile function in the condition would prevent an index scan.
    _now bigint := penstock.now_us();
    _count bigint;
begin
    select * into q from penstock.queue where name = _queue;
    select coalesce(sum(penstock._count_sent(n) - n.trimmed), 0) into _count
    from penstock.lane as n where n.queue_id = q.queue_id and n.priority >= 0;
    -- Most lanes never had a message that expires.
    if exists (
        select 1 from penstock.lane as n join penstock.checked_lane as c using (lane_id)
        where n.queue_id = q.queue_id and n.priority >= 0
    ) then
        _count := _count - (
            select count(*) from penstock.log as m join penstock.lane as n using (lane_id)
            where m.expires_at <= _now and m.position > q.trimmed_position and n.queue_id = q.queue_id and n.priority >= 0
        );
    end if;
    return _count;
end
$$;
