-- Cursors: how far a group has read a lane, and what lies beyond.

-- The cursor of a group in a lane: its newest claim. A given cursor is used when there is none, so that a cursor that was
-- moved in memory only is not lost.
create or replace function penstock._cursor(
    _group_id integer, _lane_id integer, _otherwise penstock.claim default null
) returns penstock.claim
language plpgsql stable as $$
declare
    c penstock.claim;
begin
    select * into c from penstock.claim
    where group_id = _group_id and lane_id = _lane_id
    order by number desc limit 1;
    if not found then
        c := _otherwise;
        if c is null then
            c.number := 0;
            c.prev := '1:1:';
            c.snap := '1:1:';
            c.at_tx := '0';
            c.at_seq := 0;
            c.used_up := true;
            c.above := 0;
            c.passed := 0;
            c.token := 0;
            c.checked_at := 0;
        end if;
    end if;
    return c;
end
$$;

-- Messages of a lane that a cursor has not passed, in order; of each part at most _limit. The plan must go along the
-- index: what looks better to a planner without statistics reads and sorts the whole lane for the first message.
create or replace function penstock._unread(
    _lane_id integer, c penstock.claim, _trimmed bigint, _limit bigint
) returns setof penstock.log
language plpgsql stable rows 100
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
begin
    -- The rest of its window, and what came after it.
    if not c.used_up then
        return query select * from penstock._window(_lane_id, c, _trimmed) limit _limit;
    end if;
    return query
    select m.* from unnest(array(select x from pg_snapshot_xip(c.snap) as x order by x)) as o (x)
    cross join lateral (
        select * from penstock.log as m
        where m.lane_id = _lane_id and m.tx = o.x and m.seq > _trimmed
        order by m.tx, m.seq
        limit _limit
    ) as m;
    return query
    select m.* from penstock.log as m
    where m.lane_id = _lane_id and m.tx >= pg_snapshot_xmax(c.snap) and m.seq > _trimmed
    order by m.tx, m.seq
    limit _limit;
end
$$;

-- Whether a message lies behind a cursor.
create or replace function penstock._is_read(c penstock.claim, _tx xid8, _seq bigint, _trimmed bigint) returns boolean
language sql immutable as $$
    select _seq <= _trimmed or pg_visible_in_snapshot(_tx, c.prev)
        or (
            pg_visible_in_snapshot(_tx, c.snap)
            and (c.used_up or (_tx, _seq) <= (c.at_tx, c.at_seq) or _seq <= c.above)
        )
$$;

-- Whether a group has unread messages in a lane. It may say yes to those that must be passed over.
create or replace function penstock._has_unread(_group_id integer, _lane_id integer, _trimmed bigint) returns boolean
language plpgsql stable as $$
declare
    c penstock.claim := penstock._cursor(_group_id, _lane_id);
    _above bigint := greatest(c.above, _trimmed);
begin
    if exists (
        select 1 from penstock.log as m
        where m.lane_id = _lane_id and m.tx >= pg_snapshot_xmax(c.snap) and m.seq > _trimmed
    ) then
        return true;
    end if;
    if not c.used_up and exists (
        select 1 from penstock.log as m
        where m.lane_id = _lane_id
            and (m.tx, m.seq) > (
                greatest(c.at_tx, pg_snapshot_xmax(c.prev)),
                case when c.at_tx >= pg_snapshot_xmax(c.prev) then c.at_seq else 0 end
            )
            and m.tx < pg_snapshot_xmax(c.snap) and pg_visible_in_snapshot(m.tx, c.snap) and m.seq > _above
    ) then
        return true;
    end if;
    return exists (
        select 1 from pg_snapshot_xip(c.snap) as o (x)
        where exists (select 1 from penstock.log as m where m.lane_id = _lane_id and m.tx = o.x and m.seq > _trimmed)
    ) or not c.used_up and exists (
        select 1 from pg_snapshot_xip(c.prev) as o (x)
        where x >= c.at_tx and pg_visible_in_snapshot(x, c.snap) and exists (
            select 1 from penstock.log as m
            where m.lane_id = _lane_id and m.tx = o.x and (m.tx, m.seq) > (c.at_tx, c.at_seq) and m.seq > _above
        )
    );
end
$$;

-- The place of a shard in the order in which a consumer goes around the shards of each priority: its own first, then on
-- from there. One that is not registered begins anywhere.
create or replace function penstock._turn(_group_id integer, _consumer text, _shard integer, _shards integer)
returns integer
language plpgsql stable as $$
declare
    _birth integer;
    _living integer;
begin
    if _shards = 1 then
        return _shard;
    end if;
    select count(*) filter (where other.consumer_id < self.consumer_id), count(*) into _birth, _living
    from penstock.consumer as self
    join penstock.consumer as other using (group_id)
    where self.group_id = _group_id and self.name = _consumer;
    if _living = 0 then
        _birth := ('x' || substr(md5(_consumer || pg_backend_pid()), 1, 7))::bit(28)::integer % _shards;
        _living := 1;
    end if;
    return case when _shard % _living = _birth % _living then 0 else _shards end
        + ((_shard - _birth) % _shards + _shards) % _shards;
end
$$;

-- When a lease given now ends: a deadline that is still ahead, or the expiry, ends it early.
create or replace function penstock._lease_end(
    _now bigint, _lease_seconds double precision, _expires_at bigint, _deadline_at bigint
) returns bigint
language sql immutable as $$
    select least(
        _now + penstock._us(_lease_seconds),
        case when _expires_at > _now then _expires_at end,
        case when _deadline_at > _now then _deadline_at end
    )
$$;

-- The rest of a cursor's window.
create or replace function penstock._window(_lane_id integer, c penstock.claim, _trimmed bigint)
returns setof penstock.log
language sql stable rows 100 as $$
    select * from (
        (
            select m.* from unnest(array(
                select x from pg_snapshot_xip(c.prev) as x
                where x >= c.at_tx and pg_visible_in_snapshot(x, c.snap) order by x
            )) as o (x)
            cross join lateral (
                select * from penstock.log as m
                where m.lane_id = _lane_id and m.tx = o.x and (m.tx, m.seq) > (c.at_tx, c.at_seq)
                    and m.seq > greatest(c.above, _trimmed)
                order by m.tx, m.seq
            ) as m
        )
        union all
        (
            select m.* from penstock.log as m
            where m.lane_id = _lane_id
                and (m.tx, m.seq) > (
                    greatest(c.at_tx, pg_snapshot_xmax(c.prev)),
                    case when c.at_tx >= pg_snapshot_xmax(c.prev) then c.at_seq else 0 end
                )
                and m.tx < pg_snapshot_xmax(c.snap) and pg_visible_in_snapshot(m.tx, c.snap)
                and m.seq > greatest(c.above, _trimmed)
            order by m.tx, m.seq
        )
    ) as m
$$;

-- Move a cursor, with a lease on what was taken on the way.
create or replace function penstock._claim(
    q penstock.queue, g penstock.reader, _lane_id integer, c penstock.claim, _passed bigint, _seqs bigint[],
    _consumer text, _token bigint, _ends_at bigint, _now bigint
) returns void
language plpgsql as $$
declare
    _first bigint;
    _last bigint;
    _sum bigint;
    _n integer := cardinality(_seqs);
begin
    select min(one), max(one), sum(one)::bigint into _first, _last, _sum from unnest(_seqs) as one;
    insert into penstock.claim (
        entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_seq, used_up, above, passed, at, token, checked_at,
        first, last, n, consumer, positions
    ) values (
        nextval('penstock.entry'), g.group_id, _lane_id, c.number + 1, pg_current_xact_id(), c.prev, c.snap, c.at_tx,
        c.at_seq, c.used_up, c.above, c.passed + _passed, penstock.now_us(), _token, c.checked_at,
        coalesce(_first, c.at_seq), coalesce(_last, c.at_seq), _n, _consumer, penstock._gaps(_seqs, _first, _last)
    );
    if _n > 0 then
        insert into penstock.lease as e (
            group_id, token, lane_id, ends_at, leased_at, first, last, n, checksum, consumer, positions
        ) values (
            g.group_id, _token, _lane_id, _ends_at, _now, _first, _last, _n, _sum, _consumer,
            penstock._all(_first, _last, penstock._gaps(_seqs, _first, _last))
        )
        on conflict (group_id, token, lane_id) do update
        set first = least(e.first, excluded.first), last = greatest(e.last, excluded.last), n = e.n + excluded.n,
            checksum = e.checksum + excluded.checksum, positions = e.positions + excluded.positions;
    end if;
end
$$;

-- A message of the log on its first attempt.
create or replace function penstock._as_flight(
    m penstock.log, _priority integer, _token bigint, _consumer text
) returns penstock.flight
language sql immutable as $$
    select row (
        m.seq, m.lane_id, _priority, 1, _token, _consumer, null, m.created_at, m.id, m.content_type, m.headers,
        m.expires_at, m.deadline_at, m.address, m.key, m.batch_id, m.created_by, m.available_at, m.payload
    )::penstock.flight
$$;
