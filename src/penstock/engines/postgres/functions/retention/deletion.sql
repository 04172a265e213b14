-- Deletion: rows that nothing needs any more are deleted from log, cursor and audit, a bounded number at a time. Vacuum
-- makes their space available to later rows. Each queue's rows go independently of the history of other queues.
--
-- A row of the log goes when it is trimmed and no retry or dead letter keeps the message, a cursor row or an audit
-- entry when this holds for all its messages and the audit trail begins after it. The newest row of a group in a lane
-- is its cursor and never goes.

-- Delete up to _limit rows of each table; returns how many. Skipped while another sweep does it. The table deletion
-- stores the progress, so that a pass does not start at dead rows that are not vacuumed yet, which pile up while a
-- snapshot is held. Rows that had to stay are checked again every hour.
create or replace function penstock._delete_trimmed(q penstock.queue, _limit integer, _now bigint) returns bigint
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    _count bigint := 0;
    d penstock.deletion;
begin
    select * into q from penstock.queue where queue_id = q.queue_id;
    if not found or q.trimmed_position = 0 then
        return 0;
    end if;
    -- One row for the audit entries, and one for each lane.
    insert into penstock.deletion (queue_id, lane_id)
    select q.queue_id, one.lane_id
    from (select 0 as lane_id union all select n.lane_id from penstock.lane as n where n.queue_id = q.queue_id) as one
    where not exists (
        select 1 from penstock.deletion as e where e.queue_id = q.queue_id and e.lane_id = one.lane_id
    )
    on conflict do nothing;
    for d in
        select * from penstock.deletion where queue_id = q.queue_id order by lane_id for update skip locked
    loop
        if d.lane_id = 0 then
            _count := _count + penstock._delete_audit(q, d, _limit, _now);
        else
            _count := _count + penstock._delete_lane(q, d, _limit, _now);
        end if;
    end loop;
    return _count;
end
$$;

-- Delete messages and cursor rows of a lane that are past retention, and from time to time those that had to stay
-- before.
create or replace function penstock._delete_lane(
    q penstock.queue, d penstock.deletion, _limit integer, _now bigint
) returns bigint
language plpgsql as $$
declare
    -- Before the rows are looked at: whatever ended before is seen.
    _upto xid8 := least(q.trimmed_tx, pg_snapshot_xmin(pg_current_snapshot()));
    was penstock.deletion := d;
    rows_ record;
    cursors record;
    _count bigint;
begin
    rows_ := penstock._delete_messages(q, d.lane_id, d.tx, d.position, _upto, 9223372036854775807, false, _limit);
    cursors := penstock._delete_cursors(q, d.lane_id, d.upto, q.trimmed_position, _limit);
    _count := rows_.deleted + cursors.deleted;
    d.tx := rows_.tx;
    d.position := rows_.position;
    d.upto := coalesce(cursors.next, greatest(d.upto, q.trimmed_position + 1));
    if d.again_at <= _now then
        rows_ := penstock._delete_messages(q, d.lane_id, d.again_tx, d.again_position, d.tx, d.position, true, _limit);
        cursors := penstock._delete_cursors(q, d.lane_id, d.again_upto, d.upto - 1, _limit);
        _count := _count + rows_.deleted + cursors.deleted;
        d.again_tx := rows_.tx;
        d.again_position := rows_.position;
        d.again_upto := coalesce(cursors.next, d.upto);
        if (d.again_tx, d.again_position) >= (d.tx, d.position) and d.again_upto = d.upto then
            d.again_tx := '0';
            d.again_position := 0;
            d.again_upto := 0;
            d.again_at := _now + 3600000000;
        end if;
    end if;
    if d <> was then
        update penstock.deletion
        set tx = d.tx, position = d.position, upto = d.upto, again_at = d.again_at, again_tx = d.again_tx, again_position = d.again_position,
            again_upto = d.again_upto
        where queue_id = d.queue_id and lane_id = d.lane_id;
    end if;
    return _count;
end
$$;

-- Delete rows of the log of one lane between two places, in order; returns the place up to which they were checked.
-- Audit trails begin behind trimmed messages; a message that had to stay goes after its audit entries, which may have
-- grown since. The bytes are limited too, because large messages have thousands of TOAST chunks each.
create or replace function penstock._delete_messages(
    q penstock.queue, _lane_id integer, _after xid8, _after_position bigint, _upto xid8, _upto_position bigint, _is_again boolean,
    _limit integer, out deleted bigint, out tx xid8, out "position" bigint
)
language plpgsql as $$
#variable_conflict use_column
declare
    _counted pg_snapshot := (select counted from penstock.lane where lane_id = _lane_id);
    _groups integer[] := array(select group_id from penstock.group where queue_id = q.queue_id);
    _followed bigint := penstock._first_streamed_position(q);
    done record;
    first record;
begin
    with seen as materialized (
        select one.ctid, one.tx, one.position, (
            pg_visible_in_snapshot(one.tx, _counted) and one.position < _followed
            and not exists (select 1 from penstock.dead_letter as d where d.queue_id = q.queue_id and d.position = one.position)
            and not exists (select 1 from penstock.tracked as t where t.group_id = any (_groups) and t.position = one.position)
            and not (
                _is_again and exists (select 1 from penstock._audit_entries(q.queue_id, _lane_id, one.position))
            )
        ) as is_gone
        from (
            select m.*, sum(m.size) over (rows between unbounded preceding and 1 preceding) as bytes from (
                select l.ctid, l.tx, l.position, pg_column_size(l.payload) as size from penstock.log as l
                where l.lane_id = _lane_id and (l.tx, l.position) > (_after, _after_position)
                    and (l.tx, l.position) <= (_upto, _upto_position) and l.position <= q.trimmed_position
                order by l.tx, l.position limit _limit
            ) as m
        ) as one
        where one.bytes is null or one.bytes < 67108864
    ),
    gone as (
        delete from penstock.log where ctid = any (array(select ctid from seen where is_gone))
    )
    select count(*) filter (where is_gone) as n, max(s.tx) as tx, (
        select last.position from seen as last order by last.tx desc, last.position desc limit 1
    ) as position
    into done from seen as s;
    deleted := done.n;
    tx := coalesce(done.tx, greatest(_after, _upto));
    position := coalesce(done.position, case when _is_again then _upto_position when _after < _upto then 0 else _after_position end);
    if not _is_again then
        -- Rows that are not past retention, or not yet in the lane's count of sent messages, are visited again.
        select m.tx, m.position - 1 as position into first from penstock.log as m
        where m.lane_id = _lane_id and (m.tx, m.position) > (_after, _after_position)
            and (m.tx, m.position) <= (_delete_messages.tx, _delete_messages.position)
            and (m.position > q.trimmed_position or not pg_visible_in_snapshot(m.tx, _counted))
        order by m.tx, m.position limit 1;
        if found then
            tx := first.tx;
            position := first.position;
        end if;
    end if;
end
$$;

-- Delete cursor rows of one lane whose last positions lie between two; returns where to continue, null at the end.
create or replace function penstock._delete_cursors(
    q penstock.queue, _lane_id integer, _from bigint, _upto bigint, _limit integer, out deleted bigint, out next bigint
)
language plpgsql as $$
declare
    _groups integer[] := array(select group_id from penstock.group where queue_id = q.queue_id);
    _followers penstock.cursor[] := penstock._audit_stream_cursors(q);
    _begins pg_snapshot := (penstock._mark_as_cursor(q.trail_mark)).snap;
begin
    with seen as materialized (
        select c.ctid, c.last, (
            exists (
                select 1 from penstock.cursor as later
                where later.group_id = c.group_id and later.lane_id = c.lane_id and later.number > c.number
            )
            and (
                c.n = 0
                or pg_visible_in_snapshot(c.tx, _begins)
                and not exists (
                    select 1 from penstock.dead_letter as d
                    where d.queue_id = q.queue_id and d.position between c.first and c.last
                        and (c.positions is null or c.positions @> d.position)
                )
                and not exists (
                    select 1 from penstock.tracked as t
                    where t.group_id = any (_groups) and t.position between c.first and c.last
                        and (c.positions is null or c.positions @> t.position)
                )
                and (cardinality(_followers) = 0 or not penstock._is_ahead_of_streams(_followers, c.tx, c.entry))
            )
        ) as is_gone
        from penstock.cursor as c
        where c.lane_id = _lane_id and c.last >= _from and c.last <= _upto
        order by c.last, c.first limit _limit
    ),
    gone as (
        delete from penstock.cursor where ctid = any (array(select ctid from seen where is_gone))
    )
    select count(*) filter (where is_gone), case when count(*) = _limit then greatest(max(last), _from + 1) end
    into deleted, next from seen;
end
$$;

-- Delete audit entries of the queue that are past retention, and from time to time those that had to stay before.
create or replace function penstock._delete_audit(
    q penstock.queue, d penstock.deletion, _limit integer, _now bigint
) returns bigint
language plpgsql as $$
declare
    was penstock.deletion := d;
    entries record;
    _count bigint;
begin
    entries := penstock._delete_audit_between(q, d.upto, q.trimmed_position, _limit, _now);
    _count := entries.deleted;
    d.upto := coalesce(entries.next, greatest(d.upto, q.trimmed_position + 1));
    if d.again_at <= _now then
        entries := penstock._delete_audit_between(q, d.again_upto, d.upto - 1, _limit, _now);
        _count := _count + entries.deleted;
        d.again_upto := coalesce(entries.next, 0);
        if d.again_upto = 0 then
            d.again_at := _now + 3600000000;
        end if;
    end if;
    if d <> was then
        update penstock.deletion set upto = d.upto, again_at = d.again_at, again_upto = d.again_upto
        where queue_id = d.queue_id and lane_id = 0;
    end if;
    return _count;
end
$$;

-- Delete audit entries whose last positions lie between two; returns where to continue, null at the end. Entries that
-- the counts of the groups do not include yet are kept until then. Entries of a whole group have no position and are
-- kept as long as the history.
create or replace function penstock._delete_audit_between(
    q penstock.queue, _from bigint, _upto bigint, _limit integer, _now bigint, out deleted bigint, out next bigint
)
language plpgsql as $$
declare
    _groups integer[] := array(select group_id from penstock.group where queue_id = q.queue_id);
    _followers penstock.cursor[] := penstock._audit_stream_cursors(q);
    _begins pg_snapshot := (penstock._mark_as_cursor(q.trail_mark)).snap;
begin
    with seen as materialized (
        select s.ctid, s.last, (
            pg_visible_in_snapshot(s.tx, _begins)
            and (s.first > 0 or s.at <= _now - penstock._microseconds(q.history_seconds))
            and not exists (
                select 1 from penstock.group as g
                where g.queue_id = q.queue_id and (s.group_id is null or s.group_id = g.group_id)
                    and not pg_visible_in_snapshot(s.tx, g.counted)
            )
            and not exists (
                select 1 from penstock.dead_letter as d
                where d.queue_id = q.queue_id and d.position between s.first and s.last
                    and (s.positions is null or s.positions @> d.position)
            )
            and not exists (
                select 1 from penstock.tracked as t
                where t.group_id = any (_groups) and t.position between s.first and s.last
                    and (s.positions is null or s.positions @> t.position)
            )
            and (cardinality(_followers) = 0 or not penstock._is_ahead_of_streams(_followers, s.tx, s.entry))
        ) as is_gone
        from penstock.audit as s
        where s.queue_id = q.queue_id and s.last >= _from and s.last <= _upto
        order by s.last, s.first limit _limit
    ),
    gone as (
        delete from penstock.audit where ctid = any (array(select ctid from seen where is_gone))
    )
    select count(*) filter (where is_gone), case when count(*) = _limit then greatest(max(last), _from + 1) end
    into deleted, next from seen;
end
$$;

-- The first message with an audit entry that a stream group of the queue has not read yet.
create or replace function penstock._first_streamed_position(q penstock.queue) returns bigint
language sql stable as $$
    select coalesce(min(h.first), 9223372036854775807)
    from unnest(penstock._audit_stream_cursors(q)) as c
    cross join lateral penstock._audit_between(
        q, c::penstock.cursor, penstock._mark_as_cursor(penstock._make_mark(pg_current_snapshot())), false
    ) as h
$$;

-- The cursors of active groups that stream the audit trail of a queue.
create or replace function penstock._audit_stream_cursors(q penstock.queue) returns penstock.cursor[]
language sql stable as $$
    select coalesce(array_agg(penstock._mark_as_cursor(g.stream_mark)), '{}')
    from penstock.group as g
    where g.queue_id = q.queue_id and g.stream_table = 'audit'
        and g.used_at > penstock.now_us() - penstock._microseconds(q.group_idle_seconds)
$$;

-- Whether one of these cursors has not passed an entry.
create or replace function penstock._is_ahead_of_streams(_followers penstock.cursor[], _tx xid8, _entry bigint) returns boolean
language sql immutable as $$
    select exists (
        select 1 from unnest(_followers) as c where not penstock._is_behind_cursor(c::penstock.cursor, _tx, _entry, 0)
    )
$$;
