-- Retention: what is finished leaves when its history has ended, and segments give their room back.

-- Dead letters past their retention, and what only they kept.
create or replace function penstock._purge_old(q penstock.queue, _now bigint) returns integer
language plpgsql as $$
declare
    _count integer;
begin
    with gone as (
        delete from penstock.dead_letter
        where queue_id = q.queue_id and group_id in (select group_id from penstock.reader where queue_id = q.queue_id)
            and died_at <= _now - penstock._us(q.dead_letter_seconds)
        returning 1
    )
    select count(*) into _count from gone;
    perform penstock._forget_gone(q, 0, q.trimmed_position);
    return _count;
end
$$;

-- Chosen ids and addresses of messages that are gone may be used again.
create or replace function penstock._forget_gone(q penstock.queue, _after bigint, _upto bigint) returns void
language sql as $$
    delete from penstock.identity as i
    where i.queue_id = q.queue_id and i.seq > _after and i.seq <= _upto and not penstock._is_kept(q.queue_id, i.seq);
    delete from penstock.address as a
    where a.queue_id = q.queue_id and a.seq > _after and a.seq <= _upto and a.outcome is not null
        and not penstock._is_kept(q.queue_id, a.seq)
$$;

-- Whether a retry or a dead letter keeps a message.
create or replace function penstock._is_kept(_queue_id integer, _seq bigint) returns boolean
language sql stable as $$
    select exists (select 1 from penstock.dead_letter as d where d.queue_id = _queue_id and d.seq = _seq)
        or exists (
            select 1 from penstock.reader as g join penstock.tracked as t using (group_id)
            where g.queue_id = _queue_id and t.seq = _seq
        )
$$;

-- Count what came since the last time, so that looking at the counts stays cheap. Another sweep that is at it is left
-- alone.
create or replace function penstock._fold(q penstock.queue, _now bigint) returns void
language plpgsql as $$
declare
    n penstock.lane;
    g penstock.reader;
    _snap pg_snapshot;
    _sent bigint;
    _last bigint;
    ended record;
    letters record;
begin
    _snap := penstock._snapshot();
    for n in select * from penstock.lane where queue_id = q.queue_id for update skip locked loop
        select count(*), max(one.seq) into _sent, _last from (
            select m.tx, m.seq from penstock.log as m where m.lane_id = n.lane_id and m.tx >= pg_snapshot_xmax(n.counted)
            union all
            select m.tx, m.seq from pg_snapshot_xip(n.counted) as o (x)
            join penstock.log as m on m.lane_id = n.lane_id and m.tx = o.x
        ) as one
        where pg_visible_in_snapshot(one.tx, _snap);
        if _sent > 0 then
            update penstock.lane set sent = sent + _sent, last = greatest(last, _last), counted = _snap
            where lane_id = n.lane_id;
        end if;
    end loop;
    for g in select * from penstock.reader where queue_id = q.queue_id for update skip locked loop
        select coalesce(sum(s.n) filter (where s.is_own and s.state = 'succeeded'), 0) as succeeded,
            coalesce(sum(s.n) filter (where s.is_own and s.state = 'rejected'), 0) as rejected,
            coalesce(sum(s.n) filter (where s.is_own and s.state = 'failed'), 0) as failed,
            coalesce(sum(s.n) filter (where s.is_own and s.state = 'lease_expired'), 0) as lease_expired,
            coalesce(sum(s.n) filter (where s.is_own and s.state = 'expired'), 0) as expired,
            coalesce(sum(s.n) filter (where s.is_own and s.state = 'cancelled'), 0) as cancelled,
            count(*) filter (where s.is_own) as own_steps, count(*) as steps
        into ended
        from (
            select one.n, one.state, one.group_id is null or one.group_id = g.group_id as is_own
            from penstock._steps_since(g) as one
            where pg_visible_in_snapshot(one.tx, _snap)
        ) as s;
        -- Also when only others were at work, or a group in which nothing ends would have to look at all they ever did.
        if ended.own_steps > 0 or ended.steps > 100 then
            update penstock.reader
            set succeeded = succeeded + ended.succeeded, rejected = rejected + ended.rejected,
                failed = failed + ended.failed, lease_expired = lease_expired + ended.lease_expired,
                expired = expired + ended.expired, cancelled = cancelled + ended.cancelled, counted = _snap
            where group_id = g.group_id;
        end if;
        with gone as (delete from penstock.dead_change as c where c.group_id = g.group_id returning c.n)
        select count(*) as changes, coalesce(sum(gone.n), 0) as n into letters from gone;
        if letters.changes > 0 then
            update penstock.reader set dead = dead + letters.n where group_id = g.group_id;
        end if;
    end loop;
end
$$;

-- Finished messages leave when their history has ended, and nothing leaves before: a sweep writes down up to where
-- everything is finished now; when that is as old as the queue's history, the log is trimmed up to it. What is trimmed
-- cannot be found any more; its room is given back with its segment.
create or replace function penstock._trim(q penstock.queue, _now bigint) returns bigint
language plpgsql as $$
declare
    _finished bigint := penstock._finished_position(q, _now);
    _history bigint := penstock._us(q.history_seconds);
    latest penstock.finished;
    _upto bigint;
begin
    select * into latest from penstock.finished where queue_id = q.queue_id order by at desc limit 1;
    if _finished > q.trimmed_position
        and (latest.at is null or (latest.seq < _finished and _now - latest.at >= _history / 100)) then
        insert into penstock.finished (queue_id, at, seq) values (q.queue_id, _now, _finished)
        on conflict (queue_id, at) do update set seq = excluded.seq;
    end if;
    select max(seq) into _upto from penstock.finished where queue_id = q.queue_id and at <= _now - _history;
    if _upto is null or _upto <= q.trimmed_position then
        return 0;
    end if;
    perform 1 from penstock.queue where queue_id = q.queue_id for update;
    perform penstock._carry_cursors(q, _upto, _now);
    return penstock._trim_to(q, _upto, _now);
end
$$;

-- The log of a queue begins after a position, up to which everything is finished: counts what nothing else keeps.
create or replace function penstock._trim_to(q penstock.queue, _upto bigint, _now bigint) returns bigint
language plpgsql as $$
declare
    _history bigint := penstock._us(q.history_seconds);
    _count bigint;
    _tx bigint;
begin
    perform penstock._keep_witnesses(q, _upto, penstock._snapshot());
    with gone as (
        select m.lane_id, count(*) as n, max(m.tx::text::bigint) as tx,
            count(*) filter (where not penstock._is_kept(q.queue_id, m.seq)) as free
        from penstock.log as m join penstock.lane as n using (lane_id)
        where m.seq > q.trimmed_position and m.seq <= _upto and n.queue_id = q.queue_id
        group by m.lane_id
    ),
    counted as (
        update penstock.lane as n set trimmed = n.trimmed + gone.n from gone where n.lane_id = gone.lane_id
    )
    select coalesce(sum(free), 0), max(tx) into _count, _tx from gone;
    update penstock.queue
    set trimmed_position = _upto, trimmed_tx = greatest(trimmed_tx, _tx::text::xid8), log_mark = null
    where queue_id = q.queue_id;
    perform penstock._shorten_trail(q, _upto);
    delete from penstock.finished where queue_id = q.queue_id and seq <= _upto;
    delete from penstock.skip as s
    where s.seq <= _upto and s.group_id in (select group_id from penstock.reader where queue_id = q.queue_id);
    perform penstock._forget_gone(q, q.trimmed_position, _upto);
    delete from penstock.joining where batch_id in (
        select batch_id from penstock.batch where queue_id = q.queue_id and ended_at <= _now - _history
    );
    delete from penstock.batch where queue_id = q.queue_id and ended_at <= _now - _history;
    return _count;
end
$$;

-- The trail is whole beyond everything that happened to messages that are gone.
create or replace function penstock._shorten_trail(q penstock.queue, _upto bigint) returns void
language plpgsql as $$
declare
    _last xid8;
begin
    select one.tx into _last from (
        (
            select s.tx from penstock.step as s where s.queue_id = q.queue_id and s.first <= _upto
            order by s.tx desc limit 1
        )
        union all
        (
            select c.tx from penstock.lane as n join penstock.claim as c using (lane_id)
            where n.queue_id = q.queue_id and c.n > 0 and c.first <= _upto
            order by c.tx desc limit 1
        )
    ) as one
    order by one.tx desc limit 1;
    if _last is not null then
        update penstock.queue set trail_mark = penstock._witnessed(
            q, penstock._mark(penstock._narrowed(penstock._snapshot(), _last)), 'audit'
        )
        where queue_id = q.queue_id
            and (trail_mark is null or pg_snapshot_xmax((penstock._mark_cursor(trail_mark)).snap) <= _last);
    end if;
end
$$;

-- Up to here every message is finished in every group that is in use. The primary group always holds back trimming.
create or replace function penstock._finished_position(q penstock.queue, _now bigint) returns bigint
language plpgsql as $$
declare
    _last bigint := penstock._decided();
    g penstock.reader;
    _is_read boolean := false;
begin
    for g in
        select * from penstock.reader
        where queue_id = q.queue_id
            and (used_at > _now - penstock._us(q.group_idle_seconds) or name is not distinct from q.primary_group)
    loop
        _is_read := true;
        _last := least(_last, penstock._unfinished(q, g) - 1);
    end loop;
    if not _is_read then
        -- Unread messages without readers leave only by expiring.
        select least(_last, min(m.seq) - 1) into _last
        from penstock.log as m join penstock.lane as n using (lane_id)
        where n.queue_id = q.queue_id and n.priority >= 0 and m.seq > q.trimmed_position
            and (m.expires_at is null or m.expires_at > _now);
    end if;
    return _last;
end
$$;

-- The first position that is not finished in a group, or a lower one. Of long queues only the transaction of the first
-- unread message is looked at: later transactions have later positions than the moments before them.
create or replace function penstock._unfinished(q penstock.queue, g penstock.reader) returns bigint
language plpgsql as $$
declare
    _first bigint := 9223372036854775807;
    n penstock.lane;
    c penstock.claim;
    m penstock.log;
    _count integer;
    _least bigint;
    _tx xid8;
begin
    if g.stream_table = 'audit' then
        -- Whoever follows what happened needs the messages to which it happened.
        select coalesce(min(h.first), _first) into _first
        from penstock._happened(
            q, penstock._mark_cursor(g.stream_mark), penstock._mark_cursor(penstock._mark(pg_current_snapshot())), false
        ) as h;
        return _first;
    end if;
    for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
        c := case when g.stream_mark is null then penstock._cursor(g.group_id, n.lane_id, penstock._segment())
            else penstock._mark_cursor(g.stream_mark) end;
        _count := 0;
        _least := 9223372036854775807;
        _tx := null;
        for m in select * from penstock._unread(n.lane_id, c, q.trimmed_position, 1001) loop
            _count := _count + 1;
            _least := least(_least, m.seq);
            _tx := least(_tx, m.tx);
        end loop;
        if _count > 1000 then
            select coalesce(max(seq), 0) + 1 into _least from penstock.moment where tx <= _tx;
        end if;
        _first := least(_first, _least);
    end loop;
    return least(
        _first,
        (select min(first) from penstock.lease where group_id = g.group_id),
        (select min(seq) from penstock.tracked where group_id = g.group_id)
    );
end
$$;

-- Idle groups lose what they have not read: their cursors are put where the log begins, and it is written down. No
-- message has position 0.
create or replace function penstock._carry_cursors(q penstock.queue, _upto bigint, _now bigint) returns void
language plpgsql as $$
declare
    g penstock.reader;
    n penstock.lane;
    c penstock.claim;
    _trimmed bigint;
    _is_carried boolean;
begin
    for g in
        select * from penstock.reader
        where queue_id = q.queue_id and stream_mark is null
            and used_at <= _now - penstock._us(q.group_idle_seconds) and name is distinct from q.primary_group
    loop
        _is_carried := false;
        perform penstock._lock_lanes(q, g.group_id);
        for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
            c := penstock._cursor(g.group_id, n.lane_id, penstock._segment());
            continue when not exists (
                select 1 from penstock.log as m
                where m.lane_id = n.lane_id and m.seq > q.trimmed_position and m.seq <= _upto
                    and not penstock._is_read(c, m.tx, m.seq, q.trimmed_position)
            );
            perform penstock._place(q, g, n, c, _upto, penstock._snapshot(), _now);
            _is_carried := true;
        end loop;
        if _is_carried then
            perform penstock._record(
                q.queue_id, g.group_id, 'seek', 'cancelled', 0, 'system',
                format('group %s was idle: messages up to position %s were trimmed before it read them', g.name, _upto),
                0, null, _now
            );
        end if;
    end loop;
end
$$;

-- Open the next segment when the current one has been written for half of the shortest history, and give back those of
-- which nothing is needed any more. A few rows that are still needed are carried over.
create or replace function penstock.sweep_segments() returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    _now bigint := penstock.now_us();
    _current smallint;
    _next smallint;
    _history bigint;
    s penstock.segment;
    _freed integer := 0;
    _has_rows boolean;
begin
    -- One at a time.
    if not pg_try_advisory_xact_lock(hashtextextended('penstock segments', 0)) then
        return 0;
    end if;
    _current := penstock._segment();
    _next := _current % 4 + 1;
    select penstock._us(min(history_seconds)) into _history from penstock.queue;
    select * into s from penstock.segment where segment = _current;
    execute format('select exists (select 1 from penstock.%I)', 'log_' || _current) into _has_rows;
    if _has_rows and s.opened_at <= _now - _history / 2
        and exists (select 1 from penstock.segment where segment = _next and sealed = '0') then
        update penstock.segment set opened_at = _now, sealed = null, look_at = 0 where segment = _next;
        perform nextval('penstock.segment_number');
        if pg_sequence_last_value('penstock.segment_number') = 0 then
            -- The first value of a sequence is given out once more than the others.
            perform nextval('penstock.segment_number');
        end if;
        -- Whoever has no number yet will see the new one.
        update penstock.segment set sealed = pg_snapshot_xmax(pg_current_snapshot()), look_at = _now + _history
        where segment = _current;
    end if;
    for s in
        select * from penstock.segment
        where segment between 1 and 4 and sealed > '0' and look_at <= _now
            and sealed <= pg_snapshot_xmin(pg_current_snapshot())
        order by opened_at
    loop
        if penstock._free_segment(s.segment, _now) then
            _freed := _freed + 1;
        else
            update penstock.segment set look_at = _now + _history / 8 where segment = s.segment;
        end if;
    end loop;
    return _freed;
end
$$;

-- Truncate a segment of which at most some thousand rows are still needed; false when it has to stay for now. What is
-- needed is copied first; only then is the segment locked, and not for long: those who read wait meanwhile.
create or replace function penstock._free_segment(_segment smallint, _now bigint) returns boolean
language plpgsql as $$
declare
    _needed bigint[];
    _most constant integer := 10000;
begin
    _needed := array(
        select m.seq from penstock.log as m
        join penstock.lane as n using (lane_id)
        join penstock.queue as q using (queue_id)
        where m.segment = _segment and m.seq > q.trimmed_position
        limit _most + 1
    );
    if cardinality(_needed) > _most or exists (
        -- Somebody follows what happened to messages that are past retention otherwise.
        select 1 from penstock.reader as g join penstock.queue as q using (queue_id)
        cross join lateral penstock._happened(
            q, penstock._mark_cursor(g.stream_mark), penstock._mark_cursor(penstock._mark(pg_current_snapshot())), false
        ) as h
        where g.stream_table = 'audit' and g.used_at > _now - penstock._us(q.group_idle_seconds)
            and h.first <= q.trimmed_position
    ) then
        return false;
    end if;
    insert into penstock.log (
        seq, tx, created_at, lane_id, segment, id, content_type, headers, expires_at, deadline_at, address, key, batch_id,
        created_by, available_at, payload
    )
    select seq, tx, created_at, lane_id, 0, id, content_type, headers, expires_at, deadline_at, address, key, batch_id,
        created_by, available_at, payload
    from penstock.log where segment = _segment and seq = any (_needed);
    perform penstock._carry_trails(_segment, _needed);
    begin
        perform set_config('lock_timeout', '50ms', true);
        execute format(
            'lock table penstock.%I, penstock.%I, penstock.%I in access exclusive mode', 'log_' || _segment,
            'claim_' || _segment, 'step_' || _segment
        );
        -- The cursors, unless they have moved on.
        insert into penstock.claim (
            entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_seq, used_up, above, passed, at, token,
            checked_at, first, last, n, segment, consumer, positions
        )
        select distinct on (c.group_id, c.lane_id) c.entry, c.group_id, c.lane_id, c.number, c.tx, c.prev, c.snap,
            c.at_tx, c.at_seq, c.used_up, c.above, c.passed, c.at, c.token, c.checked_at, 0, 0, 0, 0, null, null
        from penstock.claim as c
        where c.segment = _segment and not exists (
            select 1 from penstock.claim as later
            where later.segment <> _segment and later.group_id = c.group_id and later.lane_id = c.lane_id
                and later.number >= c.number
        )
        order by c.group_id, c.lane_id, c.number desc;
        execute format(
            'truncate penstock.%I, penstock.%I, penstock.%I', 'log_' || _segment, 'claim_' || _segment,
            'step_' || _segment
        );
        perform set_config('lock_timeout', '0', true);
    exception when lock_not_available then
        -- Somebody reads it. The copies must not stay.
        delete from penstock.log where segment = 0 and seq = any (_needed);
        delete from penstock.step as s where s.segment = 0 and exists (
            select 1 from penstock.step as o where o.segment = _segment and o.entry = s.entry
        );
        delete from penstock.claim as s where s.segment = 0 and exists (
            select 1 from penstock.claim as o where o.segment = _segment and o.entry = s.entry
        );
        return false;
    end;
    update penstock.segment set sealed = '0', freed = freed + 1 where segment = _segment;
    update penstock.segment set sealed = case when exists (select 1 from penstock.log where segment = 0) then null
        else '0'::xid8 end
    where segment = 0;
    delete from penstock.log as m using penstock.lane as n, penstock.queue as q
    where m.segment = 0 and n.lane_id = m.lane_id and q.queue_id = n.queue_id and m.seq <= q.trimmed_position;
    delete from penstock.removal as r using penstock.queue as q
    where q.queue_id = r.queue_id and r.last_seq <= q.trimmed_position;
    return true;
end
$$;

-- The trails of messages that are still to be found: those carried over, retries and dead letters.
create or replace function penstock._carry_trails(_segment smallint, _needed bigint[]) returns void
language plpgsql as $$
begin
    insert into penstock.step (
        entry, queue_id, group_id, tx, at, token, first, last, n, attempt, segment, event, state, by, reason, positions
    )
    select s.entry, s.queue_id, s.group_id, s.tx, s.at, s.token, min(one.seq), max(one.seq), count(distinct one.seq), s.attempt,
        0, s.event, s.state, s.by, s.reason, range_agg(int8range(one.seq, one.seq + 1))
    from penstock._kept(_needed) as one
    join penstock.step as s
        on s.segment = _segment and s.queue_id = one.queue_id and s.last >= one.seq and s.first <= one.seq
        and (s.positions is null or s.positions @> one.seq)
    group by s.entry, s.queue_id, s.group_id, s.tx, s.at, s.token, s.attempt, s.event, s.state, s.by, s.reason;
    insert into penstock.claim (
        entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_seq, used_up, above, passed, at, token, checked_at,
        first, last, n, segment, consumer, positions
    )
    select c.entry, c.group_id, c.lane_id, c.number, c.tx, c.prev, c.snap, c.at_tx, c.at_seq, c.used_up, c.above,
        c.passed, c.at, c.token, c.checked_at, kept.first, kept.last, kept.n, 0, c.consumer, kept.positions
    from (
        select c.entry, min(one.seq) as first, max(one.seq) as last, count(distinct one.seq) as n,
            range_agg(int8range(one.seq, one.seq + 1)) as positions
        from penstock._kept(_needed) as one
        join penstock.claim as c
            on c.segment = _segment and c.lane_id = one.lane_id and c.last >= one.seq and c.first <= one.seq and c.n > 0
            and (c.positions is null or c.positions @> one.seq)
        group by c.entry
    ) as kept
    join penstock.claim as c on c.segment = _segment and c.entry = kept.entry;
end
$$;

create or replace function penstock._kept(_needed bigint[])
returns table (queue_id integer, lane_id integer, seq bigint)
language sql stable as $$
    select n.queue_id, m.lane_id, m.seq from penstock.log as m join penstock.lane as n using (lane_id)
    where m.segment = 0 and m.seq = any (_needed)
    union
    select d.queue_id, d.lane_id, d.seq from penstock.dead_letter as d
    union
    select g.queue_id, t.lane_id, t.seq from penstock.tracked as t join penstock.reader as g using (group_id)
$$;
