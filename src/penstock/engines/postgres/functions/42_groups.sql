-- Groups: moving a cursor, forgetting a group, emptying a queue.

-- Move a group's cursor to a position, a time (microseconds), "start" or "end": messages behind it are passed, those
-- before it are ready again unless they are leased or waiting for a retry. Gives back the position.
create or replace function penstock.seek(
    queue text, "group" text, target text, is_time boolean default false
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(seek.queue);
    g penstock.reader := penstock._ensure_group(q, penstock._check_name('group', seek."group"));
    _last bigint := penstock._last_position();
    _now bigint := penstock.now_us();
    _position bigint;
    n penstock.lane;
begin
    if target is null or target not in ('start', 'end')
        and (target !~ '^-?[0-9]{1,18}$' or target ~ '^-' and not is_time) then
        raise exception using errcode = 'PN100', message = format(
            'seek goes to a position, a time (with is_time, in microseconds since 1970), ''start'' or ''end'', not %s',
            coalesce(penstock._shown(target), 'null')
        );
    end if;
    if target = 'start' then
        _position := q.trimmed_position;
    elsif target = 'end' then
        _position := _last;
    elsif is_time then
        _position := greatest(q.trimmed_position, penstock._position_at(target::bigint));
    else
        _position := target::bigint;
        if _position > _last then
            raise exception using errcode = 'PN100',
                message = format('position %s is beyond the end of the log (%s)', _position, _last);
        end if;
        _position := greatest(q.trimmed_position, _position);
    end if;
    if g.stream_mark is not null then
        update penstock.reader set used_at = _now,
            stream_mark = case when target = 'end' then penstock._mark(penstock._snapshot())
                else penstock._mark_above(q, _position) end
        where group_id = g.group_id;
        return _position;
    end if;
    perform penstock._lock_lanes(q, g.group_id);
    select * into q from penstock.queue where queue_id = q.queue_id;
    _now := penstock.now_us();
    for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 order by lane_id loop
        perform penstock._seek_lane(q, g, n, _position, _now);
    end loop;
    perform penstock._wake(q.queue_id);
    return _position;
end
$$;

-- The last position sent before a time: messages that were never held are in the order of their times, but for clock
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
        where seq >= _middle and available_at is null order by seq limit 1;
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
    q penstock.queue, g penstock.reader, n penstock.lane, _position bigint, _now bigint
) returns void
language plpgsql as $$
declare
    c penstock.claim := penstock._cursor(g.group_id, n.lane_id);
    _snap pg_snapshot := penstock._snapshot();
    _again bigint[];
    m penstock.log;
    ended record;
    _seqs bigint[];
begin
    -- Messages passed by are neither handed out nor ended, unless somebody waits for their end.
    if g.name is not distinct from q.primary_group then
        for m in
            select l.* from penstock.log as l
            where l.seq > q.trimmed_position and l.seq <= _position and l.lane_id = n.lane_id
                and (l.address is not null or l.batch_id is not null) and pg_visible_in_snapshot(l.tx, _snap)
                and not penstock._is_read(c, l.tx, l.seq, q.trimmed_position)
                and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = l.seq)
            order by l.seq
        loop
            perform penstock._end(
                q, g, penstock._as_flight(m, n.priority, null, null), 'seek', 'cancelled', 'system',
                'the group was moved past it', 0, null, true, _now
            );
        end loop;
    end if;
    delete from penstock.skip as s
    where s.group_id = g.group_id and s.seq <= _position
        and exists (select 1 from penstock.log as l where l.seq = s.seq and l.lane_id = n.lane_id);
    -- Finished messages are ready again; what is in flight or waiting for a retry is not handed out a second time.
    _again := array(
        select l.seq from penstock.log as l
        where l.seq > _position and l.lane_id = n.lane_id and penstock._is_read(c, l.tx, l.seq, q.trimmed_position)
    );
    insert into penstock.skip (group_id, seq)
    select g.group_id, a.seq from unnest(_again) as a (seq)
    where exists (select 1 from penstock.tracked as t where t.group_id = g.group_id and t.seq = a.seq)
        or exists (
            select 1 from penstock.lease as e
            where e.group_id = g.group_id and e.lane_id = n.lane_id and e.positions @> a.seq
        )
    on conflict do nothing;
    for ended in
        select final.state, array_agg(final.seq order by final.seq) as seqs, count(*)::integer as n
        from (
            select distinct on (one.seq) one.seq, s.state
            from penstock.step as s
            cross join lateral unnest(penstock._members(penstock._all(s.first, s.last, s.positions))) as one (seq)
            join unnest(_again) as a (seq) on a.seq = one.seq
            where s.queue_id = q.queue_id and s.group_id = g.group_id and s.last > _position and s.event <> 'receive'
            order by one.seq, s.entry desc
        ) as final
        where final.state in ('succeeded', 'rejected', 'failed', 'lease_expired', 'expired', 'cancelled')
            and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = final.seq)
        group by final.state
    loop
        _seqs := ended.seqs;
        insert into penstock.step (
            entry, queue_id, group_id, tx, at, first, last, n, attempt, event, state, by, positions
        ) values (
            nextval('penstock.entry'), q.queue_id, g.group_id, pg_current_xact_id(), _now, _seqs[1], _seqs[ended.n],
            ended.n, 0, 'seek', 'ready', 'system',
            penstock._gaps(_seqs, _seqs[1], _seqs[ended.n])
        );
        perform penstock._uncount(g.group_id, ended.state, ended.n);
        delete from penstock.dead_letter where group_id = g.group_id and seq = any (_seqs);
    end loop;
    if cardinality(_again) > 0 then
        perform penstock._look_back(q.queue_id, g.group_id, 0);
    end if;
    perform penstock._place(q, g, n, c, _position, _snap, _now);
end
$$;

-- Put a cursor behind all messages up to a position. What was not visible in the snapshot comes later, wherever it is.
create or replace function penstock._place(
    q penstock.queue, g penstock.reader, n penstock.lane, c penstock.claim, _position bigint, _snap pg_snapshot,
    _now bigint
) returns void
language plpgsql as $$
declare
    _first xid8;
    _passed bigint;
begin
    select count(*) into _passed from penstock.log as l
    where l.seq > q.trimmed_position and l.seq <= _position and l.lane_id = n.lane_id
        and pg_visible_in_snapshot(l.tx, _snap);
    select l.tx into _first from penstock.log as l
    where l.lane_id = n.lane_id and l.seq > _position and pg_visible_in_snapshot(l.tx, _snap)
    order by l.tx, l.seq limit 1;
    c.prev := '1:1:';
    c.snap := _snap;
    c.used_up := _first is null;
    c.at_tx := coalesce(_first, '0');
    c.at_seq := 0;
    c.above := _position;
    c.passed := n.trimmed;
    perform penstock._claim(
        q, g, n.lane_id, c, _passed, '{}', null, c.token, 0, _now
    );
end
$$;

-- Messages that are live again have not ended.
create or replace function penstock._uncount(_group_id integer, _state text, _n integer) returns void
language sql as $$
    update penstock.reader
    set succeeded = succeeded - case _state when 'succeeded' then _n else 0 end,
        rejected = rejected - case _state when 'rejected' then _n else 0 end,
        failed = failed - case _state when 'failed' then _n else 0 end,
        lease_expired = lease_expired - case _state when 'lease_expired' then _n else 0 end,
        expired = expired - case _state when 'expired' then _n else 0 end,
        cancelled = cancelled - case _state when 'cancelled' then _n else 0 end
    where group_id = _group_id
$$;

-- Remove a group and all it has done, as if it had never read; whether it was there.
create or replace function penstock.forget(queue text, "group" text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue;
    g penstock.reader;
begin
    select * into q from penstock.queue where name = forget.queue;
    select * into g from penstock.reader where queue_id = q.queue_id and name = forget."group";
    if g.group_id is null then
        return false;
    end if;
    if g.name is not distinct from q.primary_group then
        raise exception using errcode = 'PN100', message = format(
            'group %s is the primary one of queue %s: it cannot be removed', penstock._shown(g.name),
            penstock._shown(q.name)
        );
    end if;
    perform penstock._lock_lanes(q, g.group_id);
    update penstock.queue set trail_mark = nullif(penstock.horizon(q.name, 'audit'), '0') where queue_id = q.queue_id;
    delete from penstock.claim where group_id = g.group_id;
    delete from penstock.lease where group_id = g.group_id;
    delete from penstock.tracked where group_id = g.group_id;
    delete from penstock.skip where group_id = g.group_id;
    delete from penstock.dead_letter where group_id = g.group_id;
    delete from penstock.dead_change where group_id = g.group_id;
    delete from penstock.consumer where group_id = g.group_id;
    delete from penstock.step where queue_id = q.queue_id and group_id = g.group_id;
    delete from penstock.reader where group_id = g.group_id;
    -- Whoever waits for the group is told that it is gone.
    perform penstock._wake(q.queue_id);
    return true;
end
$$;

-- Remove every message, as if the queue had just been made; leases end, nothing comes back. Counts messages. What others
-- are sending meanwhile stays.
create or replace function penstock.flush(queue text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue;
    g penstock.reader;
    n penstock.lane;
    c penstock.claim;
    _snap pg_snapshot;
    _now bigint := penstock.now_us();
    _count bigint;
    _held bigint;
    _tx bigint;
    _log_mark text;
    _trail_mark text;
begin
    select * into q from penstock.queue where name = flush.queue for update;
    if not found then
        return 0;
    end if;
    perform penstock._lock_lanes(q, null);
    _snap := penstock._snapshot();
    perform penstock._keep_witnesses(q, 9223372036854775807, max(m.tx), max(m.seq))
    from penstock.lane as n join penstock.log as m using (lane_id)
    where n.queue_id = q.queue_id and pg_visible_in_snapshot(m.tx, _snap);
    _log_mark := penstock.horizon(q.name, 'messages');
    _trail_mark := penstock.horizon(q.name, 'audit');
    with gone as (
        delete from penstock.log as l
        where l.lane_id in (select lane_id from penstock.lane where queue_id = q.queue_id)
            and pg_visible_in_snapshot(l.tx, _snap)
        returning l.seq, l.tx
    )
    select count(*) filter (where seq > q.trimmed_position), max(tx::text::bigint) into _count, _tx from gone;
    update penstock.queue
    set trimmed_tx = greatest(trimmed_tx, _tx::text::xid8), log_mark = nullif(_log_mark, '0'),
        trail_mark = nullif(_trail_mark, '0')
    where queue_id = q.queue_id;
    if _tx is not null then
        delete from penstock.removal where queue_id = q.queue_id;
        perform penstock._tell_readers(q.queue_id, '0', 0, _tx::text::xid8, 9223372036854775807);
    end if;
    with gone as (delete from penstock.held where queue_id = q.queue_id returning 1)
    select count(*) into _held from gone;
    delete from penstock.lease where group_id in (select group_id from penstock.reader where queue_id = q.queue_id);
    delete from penstock.tracked where group_id in (select group_id from penstock.reader where queue_id = q.queue_id);
    delete from penstock.skip where group_id in (select group_id from penstock.reader where queue_id = q.queue_id);
    delete from penstock.dead_letter where queue_id = q.queue_id;
    delete from penstock.member where batch_id in (select batch_id from penstock.batch where queue_id = q.queue_id);
    delete from penstock.joining where batch_id in (select batch_id from penstock.batch where queue_id = q.queue_id);
    delete from penstock.identity where queue_id = q.queue_id;
    delete from penstock.step where queue_id = q.queue_id;
    delete from penstock.address where queue_id = q.queue_id;
    delete from penstock.batch where queue_id = q.queue_id;
    delete from penstock.finished where queue_id = q.queue_id;
    for g in select * from penstock.reader where queue_id = q.queue_id loop
        for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
            c := penstock._cursor(g.group_id, n.lane_id);
            continue when c.number = 0 and g.stream_mark is not null;
            c.prev := _snap;
            c.snap := _snap;
            c.used_up := true;
            c.above := 0;
            c.passed := 0;
            perform penstock._claim(q, g, n.lane_id, c, 0, '{}', null, c.token, 0, _now);
        end loop;
    end loop;
    delete from penstock.claim where n > 0 and lane_id in (
        select lane_id from penstock.lane where queue_id = q.queue_id
    );
    update penstock.lane set trimmed = 0, sent = 0, counted = _snap where queue_id = q.queue_id;
    update penstock.reader
    set succeeded = 0, rejected = 0, failed = 0, lease_expired = 0, expired = 0, cancelled = 0,
        counted = penstock._snapshot(),
        stream_mark = case stream_table when 'messages' then _log_mark when 'audit' then _trail_mark end
    where queue_id = q.queue_id;
    return _count + _held;
end
$$;
