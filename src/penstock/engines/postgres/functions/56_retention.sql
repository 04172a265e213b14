-- Retention: what is finished leaves when its history has ended.

-- Dead letters past their retention, and what only they kept.
create or replace function penstock._purge_old(q penstock.queue, _now bigint) returns integer
language plpgsql as $$
declare
    _count integer;
begin
    with gone as (
        delete from penstock.dead_letter where (group_id, seq) in (
            select d.group_id, d.seq from penstock.reader as g join penstock.dead_letter as d using (group_id)
            where g.queue_id = q.queue_id and d.died_at <= _now - penstock._us(q.dead_letter_seconds)
            order by d.group_id, d.died_at limit 10000
            for update of d skip locked
        )
        returning 1
    )
    select count(*) into _count from gone;
    perform penstock._forget_gone(q, 0, q.trimmed_position);
    return _count;
end
$$;

-- Chosen ids and addresses of messages that are gone may be used again. One that a transaction which has not ended uses again
-- is left to it.
create or replace function penstock._forget_gone(q penstock.queue, _after bigint, _upto bigint) returns void
language sql as $$
    delete from penstock.identity where (queue_id, id) in (
        select i.queue_id, i.id from penstock.identity as i
        where i.queue_id = q.queue_id and i.seq > _after and i.seq <= _upto and not penstock._is_kept(q.queue_id, i.seq)
        for update skip locked
    );
    delete from penstock.address where (queue_id, address) in (
        select a.queue_id, a.address from penstock.address as a
        where a.queue_id = q.queue_id and a.seq > _after and a.seq <= _upto and a.outcome is not null
            and not penstock._is_kept(q.queue_id, a.seq)
        for update skip locked
    )
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
-- cannot be found any more; its rows are deleted by penstock._delete_trimmed. Nothing can appear at or before _decided.
create or replace function penstock._trim(q penstock.queue, _decided bigint, _now bigint) returns bigint
language plpgsql as $$
declare
    _finished bigint;
    _history bigint := penstock._us(q.history_seconds);
    latest penstock.finished;
    _upto bigint;
begin
    select * into latest from penstock.finished where queue_id = q.queue_id order by at desc limit 1;
    if latest.at is null or _now - latest.at >= _history / 100 then
        _finished := penstock._finished_position(
            q, greatest(q.trimmed_position, coalesce(latest.seq, 0)), _decided, _now
        );
    end if;
    if _finished > greatest(q.trimmed_position, coalesce(latest.seq, 0)) then
        insert into penstock.finished (queue_id, at, seq) values (q.queue_id, _now, _finished)
        on conflict (queue_id, at) do update set seq = excluded.seq;
    end if;
    select max(seq) into _upto from penstock.finished where queue_id = q.queue_id and at <= _now - _history;
    if _upto is null or _upto <= q.trimmed_position then
        return 0;
    end if;
    -- As it is now: another sweep may have trimmed meanwhile. One that is at it is left alone.
    select * into q from penstock.queue where queue_id = q.queue_id for update skip locked;
    if not found or _upto <= q.trimmed_position then
        return 0;
    end if;
    if not penstock._carried_cursors(q, _upto, _now) then
        return 0;
    end if;
    return penstock._trim_to(q, _upto, _now);
end
$$;

-- The log of a queue begins after a position, up to which everything is finished: counts what nothing else keeps.
create or replace function penstock._trim_to(q penstock.queue, _upto bigint, _now bigint) returns bigint
language plpgsql as $$
declare
    _history bigint := penstock._us(q.history_seconds);
    -- Later transactions have later positions.
    _before xid8 := coalesce(
        (select min(tx) from penstock.moment where seq >= _upto), pg_snapshot_xmin(pg_current_snapshot())
    );
    _count bigint;
    _tx xid8;
    _seq bigint;
begin
    with gone as (
        select n.lane_id, one.n, one.tx, one.seq
        from penstock.lane as n
        left join penstock.deletion as d on d.queue_id = n.queue_id and d.lane_id = n.lane_id
        cross join lateral (
            select count(*) as n, max(m.tx) as tx, max(m.seq) as seq from penstock.log as m
            where m.lane_id = n.lane_id and (m.tx, m.seq) > (coalesce(d.tx, '0'), coalesce(d.seq, 0)) and m.tx < _before
                and m.seq > q.trimmed_position and m.seq <= _upto
        ) as one
        where n.queue_id = q.queue_id and one.n > 0
    ),
    counted as (
        update penstock.lane as n set trimmed = n.trimmed + gone.n from gone where n.lane_id = gone.lane_id
    )
    select coalesce(sum(gone.n), 0), max(gone.tx), max(gone.seq) into _count, _tx, _seq from gone;
    perform penstock._keep_witnesses(q, _upto, _tx, _seq);
    _count := _count - penstock._count_kept(q.queue_id, q.trimmed_position, _upto);
    update penstock.queue
    set trimmed_position = _upto, trimmed_tx = greatest(trimmed_tx, _tx), log_mark = null
    where queue_id = q.queue_id;
    perform penstock._shorten_trail(q, penstock._last_happened(q, _upto));
    delete from penstock.removal where queue_id = q.queue_id and last_seq <= _upto;
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

-- How many messages of the log between two positions are kept by a retry or a dead letter.
create or replace function penstock._count_kept(_queue_id integer, _after bigint, _upto bigint) returns bigint
language sql stable as $$
    select count(*) from (
        select d.seq from penstock.dead_letter as d
        where d.queue_id = _queue_id and d.seq > _after and d.seq <= _upto
        union
        select t.seq from penstock.reader as g join penstock.tracked as t using (group_id)
        where g.queue_id = _queue_id and t.seq > _after and t.seq <= _upto
    ) as one
    where exists (select 1 from penstock.log as m where m.seq = one.seq)
$$;

-- The last transaction in which something happened to a message up to a position.
create or replace function penstock._last_happened(q penstock.queue, _upto bigint) returns xid8
language sql stable as $$
    select greatest(
        (
            select s.tx from penstock.step as s where s.queue_id = q.queue_id and s.first <= _upto
            order by s.tx desc limit 1
        ),
        (
            select max(last.tx) from penstock.lane as n
            cross join lateral (
                select c.tx from penstock.claim as c
                where c.lane_id = n.lane_id and c.n > 0 and c.first <= _upto
                order by c.tx desc limit 1
            ) as last
            where n.queue_id = q.queue_id
        )
    )
$$;

-- The trail is whole beyond a transaction, unless it begins later already.
create or replace function penstock._shorten_trail(q penstock.queue, _last xid8) returns void
language sql as $$
    update penstock.queue set trail_mark = penstock._witnessed(
        q, penstock._mark(penstock._narrowed(penstock._snapshot(), _last)), 'audit'
    )
    where queue_id = q.queue_id and _last is not null
        and (trail_mark is null or pg_snapshot_xmax((penstock._mark_cursor(trail_mark)).snap) <= _last)
$$;

drop function if exists penstock._finished_position(penstock.queue, bigint, bigint);

-- Up to here every message is finished in every group that is in use. The primary group always holds back trimming. Without
-- one nobody can say that a message is not wanted any more, because another group may come: it is over when it expires. Up
-- to _known everything was found finished before.
create or replace function penstock._finished_position(
    q penstock.queue, _known bigint, _decided bigint, _now bigint
) returns bigint
language plpgsql as $$
declare
    _last bigint := _decided;
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
    if q.primary_group is null or not _is_read then
        _last := least(_last, penstock._first_unexpired(q, _known, _now) - 1);
    end if;
    return _last;
end
$$;

-- The first position after another one whose message has not expired; null when there is none. A short queue is read as a
-- whole, a long one along the log.
create or replace function penstock._first_unexpired(q penstock.queue, _after bigint, _now bigint) returns bigint
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
begin
    if (select sum(n.sent - n.trimmed) < 10000 from penstock.lane as n where n.queue_id = q.queue_id) then
        return (
            select min(l.seq) from penstock.lane as n
            cross join lateral (
                select m.seq from penstock.log as m
                where m.lane_id = n.lane_id and m.seq > _after and (m.expires_at is null or m.expires_at > _now)
                offset 0
            ) as l
            where n.queue_id = q.queue_id and n.priority >= 0
        );
    end if;
    return (
        select m.seq from penstock.log as m join penstock.lane as n using (lane_id)
        where m.seq > _after and n.queue_id = q.queue_id and n.priority >= 0
            and (m.expires_at is null or m.expires_at > _now)
        order by m.seq limit 1
    );
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
        c := case when g.stream_mark is null then penstock._cursor(g.group_id, n.lane_id)
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
-- message has position 0. False when somebody reads such a group after all.
drop function if exists penstock._carry_cursors(penstock.queue, bigint, bigint);
create or replace function penstock._carried_cursors(q penstock.queue, _upto bigint, _now bigint) returns boolean
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
        if not penstock._try_lanes(q, g.group_id) then
            return false;
        end if;
        for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
            c := penstock._cursor(g.group_id, n.lane_id);
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
    return true;
end
$$;
