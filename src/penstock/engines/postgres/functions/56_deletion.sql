-- Deletion: rows that nothing needs any more leave the tables log, claim and step, a bounded number at a time. Vacuum makes
-- their room available to later rows. Each queue's rows go by themselves, whatever the history of other queues.
--
-- A row of the log goes when it is trimmed and no retry or dead letter keeps the message, a claim or a step when this holds
-- for all its messages. The newest claim of a group in a lane is its cursor and never goes.

-- Delete up to _limit rows of each table; how many went. What another sweep is deleting is left to it. The table deletion
-- has how far this has come, so that a pass begins there and not at rows that are dead but not yet vacuumed: these pile up
-- while somebody keeps a snapshot.
create or replace function penstock._delete_trimmed(q penstock.queue, _limit integer, _now bigint) returns bigint
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    _count bigint := 0;
    d penstock.deletion;
    n penstock.lane;
begin
    select * into q from penstock.queue where queue_id = q.queue_id;
    if q.trimmed_position = 0 then
        return 0;
    end if;
    insert into penstock.deletion (queue_id, lane_id)
    select q.queue_id, 0 where not exists (
        select 1 from penstock.deletion where queue_id = q.queue_id and lane_id = 0
    )
    union all
    select l.queue_id, l.lane_id from penstock.lane as l
    where l.queue_id = q.queue_id and not exists (
        select 1 from penstock.deletion as k where k.queue_id = l.queue_id and k.lane_id = l.lane_id
    )
    on conflict do nothing;
    for d in
        select * from penstock.deletion where queue_id = q.queue_id order by lane_id for update skip locked
    loop
        if d.again_at <= _now then
            -- From the start: some letters have gone since, and some claims are no cursors any more.
            d.tx := '0';
            d.seq := 0;
            d.upto := 0;
            d.again_at := _now + 3600000000;
        end if;
        if d.lane_id = 0 then
            _count := _count + penstock._delete_steps(q, d, _limit, _now);
        else
            select * into n from penstock.lane where lane_id = d.lane_id;
            _count := _count + penstock._delete_messages(q, n, d, _limit)
                + penstock._delete_claims(q, d, _limit);
        end if;
    end loop;
    return _count;
end
$$;

-- Rows of the log of one lane, in its order. Large messages have thousands of pieces each: their bytes are limited too.
create or replace function penstock._delete_messages(
    q penstock.queue, n penstock.lane, d penstock.deletion, _limit integer
) returns bigint
language plpgsql as $$
declare
    -- Before the rows are looked at: whatever ended before is seen.
    _upto xid8 := least(q.trimmed_tx, pg_snapshot_xmin(pg_current_snapshot()));
    _followed bigint := penstock._first_followed(q);
    done record;
begin
    with seen as materialized (
        select one.ctid, one.tx, one.seq, (
            pg_visible_in_snapshot(one.tx, n.counted) and one.seq < _followed
            and not penstock._is_kept(q.queue_id, one.seq)
        ) as is_gone
        from (
            select m.*, sum(m.size) over (rows between unbounded preceding and 1 preceding) as bytes from (
                select l.ctid, l.tx, l.seq, pg_column_size(l.payload) as size from penstock.log as l
                where l.lane_id = n.lane_id and (l.tx, l.seq) > (d.tx, d.seq) and l.tx <= _upto
                    and l.seq <= q.trimmed_position
                order by l.tx, l.seq limit _limit
            ) as m
        ) as one
        where one.bytes is null or one.bytes < 67108864
    ),
    gone as (
        delete from penstock.log where ctid = any (array(select ctid from seen where is_gone))
    )
    select count(*) as seen, count(*) filter (where is_gone) as n, max(tx) as tx, (
        select last.seq from seen as last order by last.tx desc, last.seq desc limit 1
    ) as seq
    into done from seen;
    perform penstock._note_deleted_messages(q, n, d, coalesce(done.tx, _upto), coalesce(done.seq, 0));
    return done.n;
end
$$;

-- The rows of a lane up to a place were looked at. Those that retention has not come to, and those that are not in the
-- lane's count of what was sent, are looked at again: the place is put before them. No transaction before it is open.
create or replace function penstock._note_deleted_messages(
    q penstock.queue, n penstock.lane, d penstock.deletion, _tx xid8, _seq bigint
) returns void
language plpgsql as $$
declare
    m record;
begin
    select l.tx, l.seq into m from penstock.log as l
    where l.lane_id = n.lane_id and (l.tx, l.seq) > (d.tx, d.seq) and (l.tx, l.seq) <= (_tx, _seq)
        and (l.seq > q.trimmed_position or not pg_visible_in_snapshot(l.tx, n.counted))
    order by l.tx, l.seq limit 1;
    if found then
        _tx := m.tx;
        _seq := m.seq - 1;
    end if;
    if (_tx, _seq) > (d.tx, d.seq) then
        update penstock.deletion set tx = _tx, seq = _seq where queue_id = q.queue_id and lane_id = n.lane_id;
    end if;
end
$$;

-- The first message of which something happened that a group which follows the queue has not read yet.
create or replace function penstock._first_followed(q penstock.queue) returns bigint
language sql stable as $$
    select coalesce(min(h.first), 9223372036854775807)
    from unnest(penstock._followers(q)) as c
    cross join lateral penstock._happened(
        q, c::penstock.claim, penstock._mark_cursor(penstock._mark(pg_current_snapshot())), false
    ) as h
$$;

-- Claims of one lane, in the order of their last positions.
create or replace function penstock._delete_claims(q penstock.queue, d penstock.deletion, _limit integer) returns bigint
language plpgsql as $$
declare
    _followers penstock.claim[] := penstock._followers(q);
    done record;
begin
    with seen as materialized (
        select c.ctid, c.last, c.tx, (
            exists (
                select 1 from penstock.claim as later
                where later.group_id = c.group_id and later.lane_id = c.lane_id and later.number > c.number
            )
            and not (c.n > 0 and penstock._is_any_kept(q.queue_id, c.first, c.last, c.positions))
            and not penstock._is_followed(_followers, c.tx, c.entry)
        ) as is_gone
        from penstock.claim as c
        where c.lane_id = d.lane_id and c.last >= d.upto and c.last <= q.trimmed_position
        order by c.last, c.first limit _limit
    )
    select count(*) as seen, max(last) as last, array_agg(ctid) filter (where is_gone) as gone,
        max(tx) filter (where is_gone) as tx
    into done from seen;
    perform penstock._note_deletion(q, d, done.seen = _limit, done.last, done.tx);
    delete from penstock.claim where ctid = any (done.gone);
    return coalesce(cardinality(done.gone), 0);
end
$$;

-- Steps of the queue, in the order of their last positions. Those that are not in the counts of the groups wait for that. What
-- happened to a whole group has no position and is kept as long as the history.
create or replace function penstock._delete_steps(
    q penstock.queue, d penstock.deletion, _limit integer, _now bigint
) returns bigint
language plpgsql as $$
declare
    _followers penstock.claim[] := penstock._followers(q);
    done record;
begin
    with seen as materialized (
        select s.ctid, s.last, s.tx, (
            not exists (
                select 1 from penstock.reader as g
                where g.queue_id = q.queue_id and (s.group_id is null or s.group_id = g.group_id)
                    and not pg_visible_in_snapshot(s.tx, g.counted)
            )
            and (s.first > 0 or s.at <= _now - penstock._us(q.history_seconds))
            and not penstock._is_any_kept(q.queue_id, s.first, s.last, s.positions)
            and not penstock._is_followed(_followers, s.tx, s.entry)
        ) as is_gone
        from penstock.step as s
        where s.queue_id = q.queue_id and s.last >= d.upto and s.last <= q.trimmed_position
        order by s.last, s.first limit _limit
    )
    select count(*) as seen, max(last) as last, array_agg(ctid) filter (where is_gone) as gone,
        max(tx) filter (where is_gone) as tx
    into done from seen;
    perform penstock._note_deletion(q, d, done.seen = _limit, done.last, done.tx);
    delete from penstock.step where ctid = any (done.gone);
    return coalesce(cardinality(done.gone), 0);
end
$$;

-- How far claims or steps were looked at: up to _last, where there may be more, or all. The trail is whole beyond those that
-- go, which are still there: one of them may be the witness of where it begins.
create or replace function penstock._note_deletion(
    q penstock.queue, d penstock.deletion, _has_more boolean, _last bigint, _tx xid8
) returns void
language plpgsql as $$
begin
    update penstock.deletion as k
    set upto = new.upto, again_at = d.again_at
    from (
        select case when _has_more then greatest(_last, d.upto + 1) else greatest(d.upto, q.trimmed_position + 1) end as upto
    ) as new
    where k.queue_id = d.queue_id and k.lane_id = d.lane_id and (k.upto, k.again_at) <> (new.upto, d.again_at);
    if _tx is not null then
        perform penstock._shorten_trail(q, _tx);
    end if;
end
$$;

-- Whether a retry or a dead letter keeps any of these messages.
create or replace function penstock._is_any_kept(
    _queue_id integer, _first bigint, _last bigint, _positions int8multirange
) returns boolean
language sql stable as $$
    select exists (
        select 1 from penstock.dead_letter as d
        where d.queue_id = _queue_id and d.seq between _first and _last
            and (_positions is null or _positions @> d.seq)
    ) or exists (
        select 1 from penstock.reader as g join penstock.tracked as t using (group_id)
        where g.queue_id = _queue_id and t.seq between _first and _last and (_positions is null or _positions @> t.seq)
    )
$$;

-- Where the groups stand that are in use and follow what happens in a queue.
create or replace function penstock._followers(q penstock.queue) returns penstock.claim[]
language sql stable as $$
    select coalesce(array_agg(penstock._mark_cursor(g.stream_mark)), '{}')
    from penstock.reader as g
    where g.queue_id = q.queue_id and g.stream_table = 'audit'
        and g.used_at > penstock.now_us() - penstock._us(q.group_idle_seconds)
$$;

-- Whether one of these has not come to an entry yet.
create or replace function penstock._is_followed(_followers penstock.claim[], _tx xid8, _entry bigint) returns boolean
language sql immutable as $$
    select exists (
        select 1 from unnest(_followers) as c where not penstock._is_read(c::penstock.claim, _tx, _entry, 0)
    )
$$;
