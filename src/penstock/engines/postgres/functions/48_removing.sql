-- Taking messages out for good because an operator says so: single ones, or the oldest. Retention, brought forward.
--
-- Where a message is live it ends first, as cancelled and without a dead letter; then it leaves. The oldest leave by moving
-- the place where the log begins, as when retention ends. A single one is deleted from the log at once.

-- Nobody receives from the queue or makes a group of it until this transaction ends; the queue as it is then.
create or replace function penstock._hold_still(q penstock.queue) returns penstock.queue
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(penstock._readers_key(q.queue_id));
    perform penstock._lock_lanes(q, null);
    -- In the order in which a sweep takes them.
    perform 1 from penstock.lane where queue_id = q.queue_id order by lane_id for update;
    select * into q from penstock.queue where queue_id = q.queue_id for update;
    return q;
end
$$;

-- Remove messages, wherever they are: counts those that were there. A window that is read again lacks them.
create or replace function penstock.remove(queue text, ids uuid[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue;
    place record;
    _id uuid;
    _seqs bigint[] := '{}';
    _now bigint;
begin
    select * into q from penstock.queue where name = remove.queue;
    if not found then
        return 0;
    end if;
    q := penstock._hold_still(q);
    _now := penstock.now_us();
    for _id in select distinct one from unnest(remove.ids) as one order by one loop
        place := penstock._locate(q, _id);
        if place.held_id is not null then
            place.seq := coalesce(
                penstock._withdraw_unmourned(q, place.held_id, _now),
                -- It was due just now.
                (penstock._locate(q, _id)).seq
            );
        end if;
        if place.seq is not null then
            _seqs := _seqs || place.seq;
            delete from penstock.door_note as note using penstock.door as d
            where d.queue_id = q.queue_id and note.door_id = d.door_id and note.message_id = _id;
        end if;
    end loop;
    perform penstock._clear(q, _seqs, false, _now);
    return cardinality(_seqs);
end
$$;

-- held -> cancelled in every group: the message gets a place in the log, from which it can go. Null when it is not held.
create or replace function penstock._withdraw_unmourned(q penstock.queue, _held_id bigint, _now bigint) returns bigint
language plpgsql as $$
declare
    h penstock.held;
    fl penstock.flight;
begin
    delete from penstock.held where held_id = _held_id returning * into h;
    if not found then
        return null;
    end if;
    fl := penstock._arrive(q, h, -1 - h.priority);
    perform penstock._record(
        q.queue_id, null, 'remove', 'cancelled', fl.seq, 'system', penstock._reason('remove'), 0, null, _now
    );
    perform penstock._free(
        q.queue_id, int8multirange(int8range(fl.seq, fl.seq + 1)), 'cancelled', penstock._reason('remove'), _now
    );
    return fl.seq;
end
$$;

-- Remove the oldest messages of the log: all up to a position, or all but the newest. Counts them; dead letters stay. What a
-- transaction that has not ended has sent is not removed, wherever it lies.
create or replace function penstock.trim(queue text, upto bigint default null, keep bigint default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue;
    _now bigint;
    _upto bigint;
    _piece bigint;
    _rest bigint[];
    _count bigint := 0;
begin
    if (trim.upto is null) = (trim.keep is null) or trim.keep < 0 then
        raise exception using errcode = 'PN100', message = format(
            'trim takes either upto (a position) or keep (a number of messages, 0 or more), not %s and %s',
            coalesce(trim.upto::text, 'null'), coalesce(trim.keep::text, 'null')
        );
    end if;
    -- Before this transaction has a number.
    perform penstock._note_moment();
    select * into q from penstock.queue where name = trim.queue;
    if not found then
        return 0;
    end if;
    _upto := case when trim.keep is null then least(trim.upto, penstock._last_position())
        else penstock._behind_newest(q, trim.keep) end;
    if _upto is null or _upto <= q.trimmed_position then
        return 0;
    end if;
    q := penstock._hold_still(q);
    _now := penstock.now_us();
    loop
        select max(one.seq) into _piece from (
            select m.seq from penstock.log as m join penstock.lane as n using (lane_id)
            where n.queue_id = q.queue_id and m.seq > q.trimmed_position
                and m.seq <= least(_upto, penstock._long_decided())
            order by m.seq
            limit 10000
        ) as one;
        exit when _piece is null;
        perform penstock._end_oldest(q, _piece, _now);
        _count := _count + penstock._trim_to(q, _piece, _now);
        select * into q from penstock.queue where queue_id = q.queue_id;
    end loop;
    -- Something may still appear among these: where the log begins must not be moved past them.
    _rest := array(
        select m.seq from penstock.log as m join penstock.lane as n using (lane_id)
        where n.queue_id = q.queue_id and n.priority >= 0 and m.seq > q.trimmed_position and m.seq <= _upto
    );
    _count := _count + (
        select count(*) from unnest(_rest) as one
        where not exists (select 1 from penstock.dead_letter as d where d.queue_id = q.queue_id and d.seq = one)
    );
    perform penstock._clear(q, _rest, true, _now);
    return _count;
end
$$;

-- The position behind which the newest messages lie; null when there are no more than those.
create or replace function penstock._behind_newest(q penstock.queue, _keep bigint) returns bigint
language plpgsql as $$
declare
    _excess bigint := (
        select sum(penstock._sent(n) - n.trimmed) from penstock.lane as n
        where n.queue_id = q.queue_id and n.priority >= 0
    ) - _keep;
begin
    if coalesce(_excess, 0) <= 0 then
        return null;
    end if;
    return (
        select m.seq from penstock.log as m join penstock.lane as n using (lane_id)
        where n.queue_id = q.queue_id and n.priority >= 0 and m.seq > q.trimmed_position
        order by m.seq offset _excess - 1 limit 1
    );
end
$$;

-- The last position up to which everything is known to be decided, without waiting for anybody.
create or replace function penstock._long_decided() returns bigint
language sql stable as $$
    select coalesce(max(seq), 0) from penstock.moment where tx <= pg_snapshot_xmin(pg_current_snapshot())
$$;

-- live -> cancelled for all messages up to a position, in every group; the cursors count them as passed.
create or replace function penstock._end_oldest(q penstock.queue, _upto bigint, _now bigint) returns void
language plpgsql as $$
declare
    n penstock.lane;
    g penstock.reader;
    _seqs bigint[];
    _unread integer;
begin
    for n in select * from penstock.lane where queue_id = q.queue_id order by lane_id loop
        _seqs := array(
            select m.seq from penstock.log as m
            where m.lane_id = n.lane_id and m.seq > q.trimmed_position and m.seq <= _upto order by m.seq
        );
        continue when _seqs = '{}';
        for g in select * from penstock.reader where queue_id = q.queue_id and stream_mark is null order by group_id loop
            _unread := penstock._end_live(q, g, n, _seqs, _now);
            perform penstock._count_passed(q, g, n, _unread, _now);
        end loop;
    end loop;
end
$$;

-- Messages leave one by one: they end where they are live, and are deleted. Dead letters stay if told to.
create or replace function penstock._clear(
    q penstock.queue, _seqs bigint[], _keeps_letters boolean, _now bigint
) returns void
language plpgsql as $$
declare
    n penstock.lane;
begin
    if _seqs = '{}' then
        return;
    end if;
    for n in
        select * from penstock.lane as l
        where l.queue_id = q.queue_id and l.lane_id in (
            select m.lane_id from penstock.log as m where m.seq = any (_seqs)
            union
            select d.lane_id from penstock.dead_letter as d where d.queue_id = q.queue_id and d.seq = any (_seqs)
            union
            select t.lane_id from penstock.reader as g join penstock.tracked as t using (group_id)
            where g.queue_id = q.queue_id and t.seq = any (_seqs)
        )
        order by l.lane_id
        for update
    loop
        perform penstock._clear_lane(q, n, _seqs, _now);
    end loop;
    if not _keeps_letters then
        delete from penstock.dead_letter where queue_id = q.queue_id and seq = any (_seqs);
    end if;
    -- What was said about one message alone goes too; that something happened is still counted.
    update penstock.step set by = null, reason = null
    where queue_id = q.queue_id and last = any (_seqs) and first = last and event <> 'remove'
        and not penstock._is_kept(q.queue_id, last);
    delete from penstock.identity as i
    where i.queue_id = q.queue_id and i.seq = any (_seqs) and not penstock._is_kept(q.queue_id, i.seq);
    delete from penstock.address as a
    where a.queue_id = q.queue_id and a.seq = any (_seqs) and a.outcome is not null
        and not penstock._is_kept(q.queue_id, a.seq);
end
$$;

-- The same in one lane. Those that lie behind a cursor were counted as passed, and those behind the lane's count as sent.
create or replace function penstock._clear_lane(
    q penstock.queue, n penstock.lane, _all bigint[], _now bigint
) returns void
language plpgsql as $$
declare
    g penstock.reader;
    _seqs bigint[];
    _unread integer;
    gone record;
begin
    for g in select * from penstock.reader where queue_id = q.queue_id and stream_mark is null order by group_id loop
        -- A lane that was made since the others were locked.
        perform penstock._lock_lane(g.group_id, n.lane_id);
    end loop;
    _seqs := array(
        select m.seq from penstock.log as m
        where m.lane_id = n.lane_id and m.seq = any (_all) and m.seq > q.trimmed_position order by m.seq
    );
    for g in select * from penstock.reader where queue_id = q.queue_id and stream_mark is null order by group_id loop
        _unread := penstock._end_live(q, g, n, _seqs, _now);
        perform penstock._end_tracked(q, g, _all, _now);
        perform penstock._count_passed(q, g, n, _unread - cardinality(_seqs), _now);
    end loop;
    with gone as (
        delete from penstock.log as m where m.lane_id = n.lane_id and m.seq = any (_all)
        returning m.seq, m.tx, m.created_at
    ),
    noted as (
        insert into penstock.removed (queue_id, seq, tx, created_at)
        select q.queue_id, r.seq, r.tx, r.created_at from gone as r where r.seq > q.trimmed_position
    )
    select
        -- Sent are those in the lane's count and those in the log since; trimmed ones are sent in any case.
        count(*) filter (where seq > q.trimmed_position and pg_visible_in_snapshot(tx, n.counted)) as counted,
        count(*) filter (where seq <= q.trimmed_position and not pg_visible_in_snapshot(tx, n.counted)) as trimmed,
        min(tx) as first_tx, min(seq) as first_seq, max(tx) as tx, max(seq) as seq
    into gone from gone;
    update penstock.lane set sent = sent - gone.counted + gone.trimmed
    where lane_id = n.lane_id and gone.counted <> gone.trimmed;
    if gone.tx is not null then
        update penstock.queue set removed_tx = greatest(removed_tx, gone.tx) where queue_id = q.queue_id;
        perform penstock._tell_readers(q.queue_id, gone.first_tx, gone.first_seq, gone.tx, gone.seq);
    end if;
end
$$;

-- Write down that messages between two places were deleted, for those who are reading them. The queue is locked.
create or replace function penstock._tell_readers(
    _queue_id integer, _first_tx xid8, _first_seq bigint, _last_tx xid8, _last_seq bigint
) returns void
language sql as $$
    with told as (
        update penstock.queue set removals = removals + 1 where queue_id = _queue_id returning removals
    )
    insert into penstock.removal (queue_id, number, first_tx, first_seq, last_tx, last_seq)
    select _queue_id, removals, _first_tx, _first_seq, _last_tx, _last_seq from told
$$;

-- live -> cancelled in one group for messages of one lane; how many of them its cursor has not passed. The lane is locked.
create or replace function penstock._end_live(
    q penstock.queue, g penstock.reader, n penstock.lane, _seqs bigint[], _now bigint
) returns integer
language plpgsql as $$
declare
    c penstock.claim;
    e penstock.lease;
    _positions int8multirange := (select range_agg(int8range(one, one + 1)) from unnest(_seqs) as one);
    _part int8multirange;
    _unread bigint[] := '{}';
begin
    if _seqs = '{}' then
        return 0;
    end if;
    perform penstock._end_tracked(q, g, _seqs, _now);
    for e in
        select * from penstock.lease as l
        where l.group_id = g.group_id and l.lane_id = n.lane_id and l.positions && _positions
        order by l.token
        for update
    loop
        _part := e.positions * _positions;
        perform penstock._carve(e, _part, penstock._members(_part));
        perform penstock._cancel(q, g, _part, 1, _now);
    end loop;
    if n.priority >= 0 then
        c := penstock._cursor(g.group_id, n.lane_id);
        _unread := array(
            select m.seq from penstock.log as m
            where m.lane_id = n.lane_id and m.seq = any (_seqs)
                and not penstock._is_read(c, m.tx, m.seq, q.trimmed_position)
        );
        select range_agg(int8range(one, one + 1)) into _part
        from unnest(_unread) as one
        where not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = one);
        if _part is not null then
            perform penstock._cancel(q, g, _part, 0, _now);
        end if;
    end if;
    delete from penstock.skip where group_id = g.group_id and seq = any (_seqs);
    return cardinality(_unread);
end
$$;

-- The same for messages that a group looks after one by one.
create or replace function penstock._end_tracked(
    q penstock.queue, g penstock.reader, _seqs bigint[], _now bigint
) returns void
language plpgsql as $$
declare
    t penstock.tracked;
begin
    for t in delete from penstock.tracked where group_id = g.group_id and seq = any (_seqs) returning * loop
        perform penstock._end(
            q, g, penstock._tracked_flight(t), 'remove', 'cancelled', 'system', null, t.attempt, null, false, _now
        );
    end loop;
end
$$;

-- Messages end in a group because they were removed.
create or replace function penstock._cancel(
    q penstock.queue, g penstock.reader, _positions int8multirange, _attempt integer, _now bigint
) returns void
language plpgsql as $$
declare
    _first bigint := lower(_positions);
    _last bigint := upper(_positions) - 1;
    _n integer := cardinality(penstock._members(_positions));
begin
    insert into penstock.step (
        entry, queue_id, group_id, tx, at, first, last, n, attempt, event, state, by, reason, positions
    ) values (
        nextval('penstock.entry'), q.queue_id, g.group_id, pg_current_xact_id(), _now, _first, _last, _n, _attempt,
        'remove', 'cancelled', 'system', penstock._reason('remove'),
        case when _last - _first + 1 <> _n then _positions end
    );
    if g.name is not distinct from q.primary_group then
        perform penstock._free(q.queue_id, _positions, 'cancelled', penstock._reason('remove'), _now);
    end if;
end
$$;

-- A cursor has passed so many more messages, or fewer. One that has not begun counts from where the log begins.
create or replace function penstock._count_passed(
    q penstock.queue, g penstock.reader, n penstock.lane, _more integer, _now bigint
) returns void
language plpgsql as $$
declare
    c penstock.claim := penstock._cursor(g.group_id, n.lane_id);
begin
    if _more <> 0 and c.number > 0 and n.priority >= 0 then
        perform penstock._claim(q, g, n.lane_id, c, _more, '{}', null, c.token, 0, _now);
    end if;
end
$$;

-- Any message -> ready in a group, out of its turn, because somebody insists on having it: unread or passed by, waiting for
-- a retry, or ended. False when it is over or in flight. The lanes of the group are locked.
create or replace function penstock._insist(q penstock.queue, g penstock.reader, _seq bigint, _now bigint) returns boolean
language plpgsql as $$
declare
    t penstock.tracked;
    m penstock.log;
    _priority integer;
    _outcome text;
begin
    select * into t from penstock.tracked where group_id = g.group_id and seq = _seq for update;
    if found then
        if t.state = 'held' then
            update penstock.tracked set state = 'ready' where group_id = g.group_id and seq = _seq;
            perform penstock._record(
                q.queue_id, g.group_id, 'due', 'ready', _seq, 'system', null, t.attempt, null, _now
            );
        end if;
        return t.state <> 'leased';
    end if;
    select l.* into m
    from (select o.* from penstock.log as o where o.seq = _seq offset 0) as l join penstock.lane as n using (lane_id)
    where n.queue_id = q.queue_id and n.priority >= 0 and l.seq > q.trimmed_position
        and (l.expires_at is null or l.expires_at > _now);
    if not found or exists (
        select 1 from penstock.lease as e
        where e.group_id = g.group_id and e.lane_id = m.lane_id and e.positions @> _seq
    ) then
        return false;
    end if;
    _outcome := (penstock._last_entry(q.queue_id, g.group_id, m.lane_id, _seq)).state;
    if _outcome not in ('held', 'ready', 'leased') then
        perform penstock._record(
            q.queue_id, g.group_id, 'seek', 'ready', _seq, 'system', 'claimed by force', 0, null, _now
        );
        perform penstock._uncount(g.group_id, _outcome, 1);
        delete from penstock.dead_letter where group_id = g.group_id and seq = _seq;
    end if;
    if not penstock._is_read(
        penstock._cursor(g.group_id, m.lane_id), m.tx, m.seq, q.trimmed_position
    ) then
        insert into penstock.skip (group_id, seq) values (g.group_id, _seq) on conflict do nothing;
    end if;
    select priority into _priority from penstock.lane where lane_id = m.lane_id;
    perform penstock._track(g.group_id, penstock._as_flight(m, _priority, 0, null), 'ready', 0, _now, null);
    return true;
end
$$;
