-- Deletion: rows that nothing needs any more leave the tables log, claim and step, a bounded number at a time. Vacuum makes
-- their room available to later rows. Each queue's rows go by themselves, whatever the history of other queues.
--
-- A row of the log goes when it is trimmed and no retry or dead letter keeps the message, a claim or a step when this holds
-- for all its messages and the trail begins after it. The newest claim of a group in a lane is its cursor and never goes.

-- Delete up to _limit rows of each table; how many went. What another sweep is deleting is left to it. The table deletion
-- has how far this has come, so that a pass begins there and not at rows that are dead but not yet vacuumed: these pile up
-- while somebody keeps a snapshot. What had to stay is looked at again every hour.
create or replace function penstock._delete_trimmed(q penstock.queue, _limit integer, _now bigint) returns bigint
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    _count bigint := 0;
    d penstock.deletion;
begin
    select * into q from penstock.queue where queue_id = q.queue_id;
    if q.trimmed_position = 0 then
        return 0;
    end if;
    perform penstock._begin_deletions(q.queue_id);
    for d in
        select * from penstock.deletion where queue_id = q.queue_id order by lane_id for update skip locked
    loop
        if d.lane_id = 0 then
            _count := _count + penstock._delete_steps(q, d, _limit, _now);
        else
            _count := _count + penstock._delete_lane(q, d, _limit, _now);
        end if;
    end loop;
    return _count;
end
$$;

-- A row for the steps of a queue, and one for each of its lanes.
create or replace function penstock._begin_deletions(_queue_id integer) returns void
language sql as $$
    insert into penstock.deletion (queue_id, lane_id)
    select _queue_id, one.lane_id
    from (select 0 as lane_id union all select n.lane_id from penstock.lane as n where n.queue_id = _queue_id) as one
    where not exists (
        select 1 from penstock.deletion as d where d.queue_id = _queue_id and d.lane_id = one.lane_id
    )
    on conflict do nothing
$$;

-- Messages and claims of a lane: those that came to be past retention, and from time to time those that stayed before.
create or replace function penstock._delete_lane(
    q penstock.queue, d penstock.deletion, _limit integer, _now bigint
) returns bigint
language plpgsql as $$
declare
    -- Before the rows are looked at: whatever ended before is seen.
    _upto xid8 := least(q.trimmed_tx, pg_snapshot_xmin(pg_current_snapshot()));
    was penstock.deletion := d;
    rows_ record;
    claims record;
    _count bigint;
begin
    rows_ := penstock._delete_messages(q, d.lane_id, d.tx, d.seq, _upto, 9223372036854775807, false, _limit);
    claims := penstock._delete_claims(q, d.lane_id, d.upto, q.trimmed_position, _limit);
    _count := rows_.deleted + claims.deleted;
    d.tx := rows_.tx;
    d.seq := rows_.seq;
    d.upto := coalesce(claims.next, greatest(d.upto, q.trimmed_position + 1));
    if d.again_at <= _now then
        rows_ := penstock._delete_messages(q, d.lane_id, d.again_tx, d.again_seq, d.tx, d.seq, true, _limit);
        claims := penstock._delete_claims(q, d.lane_id, d.again_upto, d.upto - 1, _limit);
        _count := _count + rows_.deleted + claims.deleted;
        d.again_tx := rows_.tx;
        d.again_seq := rows_.seq;
        d.again_upto := coalesce(claims.next, d.upto);
        if (d.again_tx, d.again_seq) >= (d.tx, d.seq) and d.again_upto = d.upto then
            d.again_tx := '0';
            d.again_seq := 0;
            d.again_upto := 0;
            d.again_at := _now + 3600000000;
        end if;
    end if;
    if d <> was then
        update penstock.deletion
        set tx = d.tx, seq = d.seq, upto = d.upto, again_at = d.again_at, again_tx = d.again_tx, again_seq = d.again_seq,
            again_upto = d.again_upto
        where queue_id = d.queue_id and lane_id = d.lane_id;
    end if;
    return _count;
end
$$;

-- Rows of the log of one lane between two places, in its order; the place up to which they were looked at. When they are
-- trimmed the trail begins behind all that happened to them; what stayed and is looked at again goes after its trail, which
-- may have grown since. Large messages have thousands of pieces each: their bytes are limited too.
create or replace function penstock._delete_messages(
    q penstock.queue, _lane_id integer, _after xid8, _after_seq bigint, _upto xid8, _upto_seq bigint, _is_again boolean,
    _limit integer, out deleted bigint, out tx xid8, out seq bigint
)
language plpgsql as $$
#variable_conflict use_column
declare
    _counted pg_snapshot := (select counted from penstock.lane where lane_id = _lane_id);
    _groups integer[] := array(select group_id from penstock.reader where queue_id = q.queue_id);
    _followed bigint := penstock._first_followed(q);
    done record;
    first record;
begin
    with seen as materialized (
        select one.ctid, one.tx, one.seq, (
            pg_visible_in_snapshot(one.tx, _counted) and one.seq < _followed
            and not exists (select 1 from penstock.dead_letter as d where d.queue_id = q.queue_id and d.seq = one.seq)
            and not exists (select 1 from penstock.tracked as t where t.group_id = any (_groups) and t.seq = one.seq)
            and not (
                _is_again and exists (select 1 from penstock._entries(q.queue_id, _lane_id, one.seq))
            )
        ) as is_gone
        from (
            select m.*, sum(m.size) over (rows between unbounded preceding and 1 preceding) as bytes from (
                select l.ctid, l.tx, l.seq, pg_column_size(l.payload) as size from penstock.log as l
                where l.lane_id = _lane_id and (l.tx, l.seq) > (_after, _after_seq)
                    and (l.tx, l.seq) <= (_upto, _upto_seq) and l.seq <= q.trimmed_position
                order by l.tx, l.seq limit _limit
            ) as m
        ) as one
        where one.bytes is null or one.bytes < 67108864
    ),
    gone as (
        delete from penstock.log where ctid = any (array(select ctid from seen where is_gone))
    )
    select count(*) filter (where is_gone) as n, max(s.tx) as tx, (
        select last.seq from seen as last order by last.tx desc, last.seq desc limit 1
    ) as seq
    into done from seen as s;
    deleted := done.n;
    tx := coalesce(done.tx, greatest(_after, _upto));
    seq := coalesce(done.seq, case when _is_again then _upto_seq when _after < _upto then 0 else _after_seq end);
    if not _is_again then
        -- Rows that retention has not come to, or that are not in the lane's count of what was sent, come newly once more.
        select m.tx, m.seq - 1 as seq into first from penstock.log as m
        where m.lane_id = _lane_id and (m.tx, m.seq) > (_after, _after_seq)
            and (m.tx, m.seq) <= (_delete_messages.tx, _delete_messages.seq)
            and (m.seq > q.trimmed_position or not pg_visible_in_snapshot(m.tx, _counted))
        order by m.tx, m.seq limit 1;
        if found then
            tx := first.tx;
            seq := first.seq;
        end if;
    end if;
end
$$;

-- Claims of one lane whose last positions lie between two; where to go on, null when all were looked at.
create or replace function penstock._delete_claims(
    q penstock.queue, _lane_id integer, _from bigint, _upto bigint, _limit integer, out deleted bigint, out next bigint
)
language plpgsql as $$
declare
    _groups integer[] := array(select group_id from penstock.reader where queue_id = q.queue_id);
    _followers penstock.claim[] := penstock._followers(q);
    _begins pg_snapshot := (penstock._mark_cursor(q.trail_mark)).snap;
begin
    with seen as materialized (
        select c.ctid, c.last, (
            exists (
                select 1 from penstock.claim as later
                where later.group_id = c.group_id and later.lane_id = c.lane_id and later.number > c.number
            )
            and (
                c.n = 0
                or pg_visible_in_snapshot(c.tx, _begins)
                and not exists (
                    select 1 from penstock.dead_letter as d
                    where d.queue_id = q.queue_id and d.seq between c.first and c.last
                        and (c.positions is null or c.positions @> d.seq)
                )
                and not exists (
                    select 1 from penstock.tracked as t
                    where t.group_id = any (_groups) and t.seq between c.first and c.last
                        and (c.positions is null or c.positions @> t.seq)
                )
                and (cardinality(_followers) = 0 or not penstock._is_followed(_followers, c.tx, c.entry))
            )
        ) as is_gone
        from penstock.claim as c
        where c.lane_id = _lane_id and c.last >= _from and c.last <= _upto
        order by c.last, c.first limit _limit
    ),
    gone as (
        delete from penstock.claim where ctid = any (array(select ctid from seen where is_gone))
    )
    select count(*) filter (where is_gone), case when count(*) = _limit then greatest(max(last), _from + 1) end
    into deleted, next from seen;
end
$$;

-- Steps of the queue: those that came to be past retention, and from time to time those that stayed before.
create or replace function penstock._delete_steps(
    q penstock.queue, d penstock.deletion, _limit integer, _now bigint
) returns bigint
language plpgsql as $$
declare
    was penstock.deletion := d;
    steps record;
    _count bigint;
begin
    steps := penstock._delete_steps_between(q, d.upto, q.trimmed_position, _limit, _now);
    _count := steps.deleted;
    d.upto := coalesce(steps.next, greatest(d.upto, q.trimmed_position + 1));
    if d.again_at <= _now then
        steps := penstock._delete_steps_between(q, d.again_upto, d.upto - 1, _limit, _now);
        _count := _count + steps.deleted;
        d.again_upto := coalesce(steps.next, 0);
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

-- Steps whose last positions lie between two; where to go on, null when all were looked at. Those that are not in the counts
-- of the groups wait for that. What happened to a whole group has no position and is kept as long as the history.
create or replace function penstock._delete_steps_between(
    q penstock.queue, _from bigint, _upto bigint, _limit integer, _now bigint, out deleted bigint, out next bigint
)
language plpgsql as $$
declare
    _groups integer[] := array(select group_id from penstock.reader where queue_id = q.queue_id);
    _followers penstock.claim[] := penstock._followers(q);
    _begins pg_snapshot := (penstock._mark_cursor(q.trail_mark)).snap;
begin
    with seen as materialized (
        select s.ctid, s.last, (
            pg_visible_in_snapshot(s.tx, _begins)
            and (s.first > 0 or s.at <= _now - penstock._us(q.history_seconds))
            and not exists (
                select 1 from penstock.reader as g
                where g.queue_id = q.queue_id and (s.group_id is null or s.group_id = g.group_id)
                    and not pg_visible_in_snapshot(s.tx, g.counted)
            )
            and not exists (
                select 1 from penstock.dead_letter as d
                where d.queue_id = q.queue_id and d.seq between s.first and s.last
                    and (s.positions is null or s.positions @> d.seq)
            )
            and not exists (
                select 1 from penstock.tracked as t
                where t.group_id = any (_groups) and t.seq between s.first and s.last
                    and (s.positions is null or s.positions @> t.seq)
            )
            and (cardinality(_followers) = 0 or not penstock._is_followed(_followers, s.tx, s.entry))
        ) as is_gone
        from penstock.step as s
        where s.queue_id = q.queue_id and s.last >= _from and s.last <= _upto
        order by s.last, s.first limit _limit
    ),
    gone as (
        delete from penstock.step where ctid = any (array(select ctid from seen where is_gone))
    )
    select count(*) filter (where is_gone), case when count(*) = _limit then greatest(max(last), _from + 1) end
    into deleted, next from seen;
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
