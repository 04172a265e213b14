-- Retention: finished messages leave when their history has ended.

-- Delete dead letters past their retention, and what only they kept.
create or replace function penstock._purge_old_dead_letters(q penstock.queue, _now bigint) returns integer
language plpgsql as $$
declare
    _count integer;
begin
    with gone as (
        delete from penstock.dead_letter where (group_id, position) in (
            select d.group_id, d.position from penstock.group as g join penstock.dead_letter as d using (group_id)
            where g.queue_id = q.queue_id and d.died_at <= _now - penstock._microseconds(q.dead_letter_seconds)
            order by d.group_id, d.died_at limit 10000
            for update of d skip locked
        )
        returning 1
    )
    select count(*) into _count from gone;
    perform penstock._forget_removed(q, 0, q.trimmed_position);
    return _count;
end
$$;

-- Trim finished messages whose history has ended: a sweep records up to where everything is finished now; when that
-- record is as old as the queue's history, the log is trimmed up to it. Trimmed messages cannot be found any more;
-- penstock._delete_trimmed deletes their rows. Nothing can appear at or before _decided.
create or replace function penstock._trim_queue(q penstock.queue, _decided bigint, _now bigint) returns bigint
language plpgsql as $$
declare
    _finished bigint;
    _history bigint := penstock._microseconds(q.history_seconds);
    latest penstock.finished;
    _upto bigint;
begin
    select * into latest from penstock.finished where queue_id = q.queue_id order by at desc limit 1;
    if latest.at is null or _now - latest.at >= _history / 100 then
        _finished := penstock._finished_position(
            q, greatest(q.trimmed_position, coalesce(latest.position, 0)), _decided, _now
        );
    end if;
    if _finished > greatest(q.trimmed_position, coalesce(latest.position, 0)) then
        insert into penstock.finished (queue_id, at, position) values (q.queue_id, _now, _finished)
        on conflict (queue_id, at) do update set position = excluded.position;
    end if;
    select max(position) into _upto from penstock.finished where queue_id = q.queue_id and at <= _now - _history;
    if _upto is null or _upto <= q.trimmed_position then
        return 0;
    end if;
    -- As it is now: another sweep may have trimmed meanwhile. One that is at it is left alone.
    select * into q from penstock.queue where queue_id = q.queue_id for update skip locked;
    if not found or _upto <= q.trimmed_position then
        return 0;
    end if;
    if not penstock._move_idle_cursors(q, _upto, _now) then
        return 0;
    end if;
    return penstock._trim_to(q, _upto, _now);
end
$$;

-- Let the log of a queue begin after a position up to which everything is finished. Returns how many messages nothing
-- else keeps.
create or replace function penstock._trim_to(q penstock.queue, _upto bigint, _now bigint) returns bigint
language plpgsql as $$
declare
    _history bigint := penstock._microseconds(q.history_seconds);
    -- Later transactions have later positions.
    _before xid8 := coalesce(
        (select min(tx) from penstock.decided_position where position >= _upto), pg_snapshot_xmin(pg_current_snapshot())
    );
    _count bigint;
    _tx xid8;
    _position bigint;
begin
    with gone as (
        select n.lane_id, one.n, one.tx, one.position
        from penstock.lane as n
        left join penstock.deletion as d on d.queue_id = n.queue_id and d.lane_id = n.lane_id
        cross join lateral (
            select count(*) as n, max(m.tx) as tx, max(m.position) as position from penstock.log as m
            where m.lane_id = n.lane_id and (m.tx, m.position) > (coalesce(d.tx, '0'), coalesce(d.position, 0)) and m.tx < _before
                and m.position > q.trimmed_position and m.position <= _upto
        ) as one
        where n.queue_id = q.queue_id and one.n > 0
    ),
    counted as (
        update penstock.lane as n set trimmed = n.trimmed + gone.n from gone where n.lane_id = gone.lane_id
    )
    select coalesce(sum(gone.n), 0), max(gone.tx), max(gone.position) into _count, _tx, _position from gone;
    perform penstock._keep_witnesses(q, _upto, _tx, _position);
    _count := _count - penstock._count_kept(q.queue_id, q.trimmed_position, _upto);
    update penstock.queue
    set trimmed_position = _upto, trimmed_tx = greatest(trimmed_tx, _tx), log_mark = null
    where queue_id = q.queue_id;
    perform penstock._shorten_audit(q, penstock._last_audit_tx(q, _upto));
    delete from penstock.removal where queue_id = q.queue_id and last_position <= _upto;
    delete from penstock.finished where queue_id = q.queue_id and position <= _upto;
    delete from penstock.skip as s
    where s.position <= _upto and s.group_id in (select group_id from penstock.group where queue_id = q.queue_id);
    perform penstock._forget_removed(q, q.trimmed_position, _upto);
    delete from penstock.batch_join where batch_id in (
        select batch_id from penstock.batch where queue_id = q.queue_id and ended_at <= _now - _history
    );
    delete from penstock.batch where queue_id = q.queue_id and ended_at <= _now - _history;
    return _count;
end
$$;

-- How many messages of the log between two positions a retry or a dead letter keeps.
create or replace function penstock._count_kept(_queue_id integer, _after bigint, _upto bigint) returns bigint
language sql stable as $$
    select count(*) from (
        select d.position from penstock.dead_letter as d
        where d.queue_id = _queue_id and d.position > _after and d.position <= _upto
        union
        select t.position from penstock.group as g join penstock.tracked as t using (group_id)
        where g.queue_id = _queue_id and t.position > _after and t.position <= _upto
    ) as one
    where exists (select 1 from penstock.log as m where m.position = one.position)
$$;

-- The last transaction with an audit entry of a message up to a position.
create or replace function penstock._last_audit_tx(q penstock.queue, _upto bigint) returns xid8
language sql stable as $$
    select greatest(
        (
            select s.tx from penstock.audit as s where s.queue_id = q.queue_id and s.first <= _upto
            order by s.tx desc limit 1
        ),
        (
            select max(last.tx) from penstock.lane as n
            cross join lateral (
                select c.tx from penstock.cursor as c
                where c.lane_id = n.lane_id and c.n > 0 and c.first <= _upto
                order by c.tx desc limit 1
            ) as last
            where n.queue_id = q.queue_id
        )
    )
$$;

-- Let the audit trail begin after a transaction, unless it begins later already.
create or replace function penstock._shorten_audit(q penstock.queue, _last xid8) returns void
language sql as $$
    update penstock.queue set trail_mark = penstock._add_witness(
        q, penstock._make_mark(penstock._narrow_snapshot(penstock._current_snapshot(), _last)), 'audit'
    )
    where queue_id = q.queue_id and _last is not null
        and (trail_mark is null or pg_snapshot_xmax((penstock._mark_as_cursor(trail_mark)).snap) <= _last)
$$;

-- The position up to which every message is finished in every active group. The primary group always holds back
-- trimming. Without one no message is known to be unwanted, because another group may come: it is finished when it
-- expires. Up to _known everything was found finished before.
create or replace function penstock._finished_position(
    q penstock.queue, _known bigint, _decided bigint, _now bigint
) returns bigint
language plpgsql as $$
declare
    _last bigint := _decided;
    g penstock.group;
    _is_read boolean := false;
begin
    for g in
        select * from penstock.group
        where queue_id = q.queue_id
            and (used_at > _now - penstock._microseconds(q.group_idle_seconds) or name is not distinct from q.primary_group)
    loop
        _is_read := true;
        _last := least(_last, penstock._first_unfinished_position(q, g) - 1);
    end loop;
    if q.primary_group is null or not _is_read then
        _last := least(_last, penstock._first_unexpired(q, _known, _now) - 1);
    end if;
    return _last;
end
$$;

-- The first position after another one whose message has not expired; null when there is none. A short queue is read as
-- a whole, a long one along the log.
create or replace function penstock._first_unexpired(q penstock.queue, _after bigint, _now bigint) returns bigint
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
begin
    if (select sum(n.sent - n.trimmed) < 10000 from penstock.lane as n where n.queue_id = q.queue_id) then
        return (
            select min(l.position) from penstock.lane as n
            cross join lateral (
                select m.position from penstock.log as m
                where m.lane_id = n.lane_id and m.position > _after and (m.expires_at is null or m.expires_at > _now)
                offset 0
            ) as l
            where n.queue_id = q.queue_id and n.priority >= 0
        );
    end if;
    return (
        select m.position from penstock.log as m join penstock.lane as n using (lane_id)
        where m.position > _after and n.queue_id = q.queue_id and n.priority >= 0
            and (m.expires_at is null or m.expires_at > _now)
        order by m.position limit 1
    );
end
$$;

-- The first position that is not finished in a group, or a lower one. Of long queues only the transaction of the first
-- unread message is read: later transactions have higher positions than the decided positions recorded before them.
create or replace function penstock._first_unfinished_position(q penstock.queue, g penstock.group) returns bigint
language plpgsql as $$
declare
    _first bigint := 9223372036854775807;
    n penstock.lane;
    c penstock.cursor;
    m penstock.log;
    _count integer;
    _least bigint;
    _tx xid8;
begin
    if g.stream_table = 'audit' then
        -- A stream of the audit trail needs the messages of its entries.
        select coalesce(min(h.first), _first) into _first
        from penstock._audit_between(
            q, penstock._mark_as_cursor(g.stream_mark), penstock._mark_as_cursor(penstock._make_mark(pg_current_snapshot())), false
        ) as h;
        return _first;
    end if;
    for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
        c := case when g.stream_mark is null then penstock._get_cursor(g.group_id, n.lane_id)
            else penstock._mark_as_cursor(g.stream_mark) end;
        _count := 0;
        _least := 9223372036854775807;
        _tx := null;
        for m in select * from penstock._unread_messages(n.lane_id, c, q.trimmed_position, 1001) loop
            _count := _count + 1;
            _least := least(_least, m.position);
            _tx := least(_tx, m.tx);
        end loop;
        if _count > 1000 then
            select coalesce(max(position), 0) + 1 into _least from penstock.decided_position where tx <= _tx;
        end if;
        _first := least(_first, _least);
    end loop;
    return least(
        _first,
        (select min(first) from penstock.lease where group_id = g.group_id),
        (select min(position) from penstock.tracked where group_id = g.group_id)
    );
end
$$;

create or replace function penstock._move_idle_cursors(q penstock.queue, _upto bigint, _now bigint) returns boolean
language plpgsql as $$
declare
    g penstock.group;
    n penstock.lane;
    c penstock.cursor;
    _is_carried boolean;
begin
    for g in
        select * from penstock.group
        where queue_id = q.queue_id and stream_mark is null
            and used_at <= _now - penstock._microseconds(q.group_idle_seconds) and name is distinct from q.primary_group
    loop
        _is_carried := false;
        if not penstock._try_lock_lanes(q, g.group_id) then
            return false;
        end if;
        for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
            c := penstock._get_cursor(g.group_id, n.lane_id);
            continue when not exists (
                select 1 from penstock.log as m
                where m.lane_id = n.lane_id and m.position > q.trimmed_position and m.position <= _upto
                    and not penstock._is_behind_cursor(c, m.tx, m.position, q.trimmed_position)
            );
            perform penstock._place_cursor(q, g, n, c, _upto, penstock._current_snapshot(), _now);
            _is_carried := true;
        end loop;
        if _is_carried then
            perform penstock._record_audit(
                q.queue_id, g.group_id, 'seek', 'cancelled', 0, 'system',
                format('group %s was idle: messages up to position %s were trimmed before it read them', g.name, _upto),
                0, null, _now
            );
        end if;
    end loop;
    return true;
end
$$;
