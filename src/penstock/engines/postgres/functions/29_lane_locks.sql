-- Who may read a lane of a group: the locks of receives. All of them are advisory locks that end with their transaction.
--
-- One transaction at a time may move the cursor of a lane: it holds the lane's lock. As long as it stays open nobody can
-- see how far it came, so at the end of a receive it publishes what it took, as locks whose numbers say it, and that it is
-- done. Others then overtake: they leave out what was published, and lease other messages one by one, each under a lock of
-- its own, ahead of the cursor, which passes over them later.
--
-- An overtaker says so by a shared lock before it looks at the holder of the lane's lock; a reader takes the lane's lock
-- before it looks for overtakers, and if there are any it takes its messages one by one too. So nobody moves the cursor
-- while somebody overtakes. Locks are looked at before tables: a transaction is visible before its locks are gone.
--
-- Nobody waits for another's transaction without a bound.

-- The lane's lock. The number next to it is that of the overtakers, the one after that says that the holder is done.
create or replace function penstock._lane_key(_group_id integer, _lane_id integer) returns bigint
language sql immutable as $$
    select hashint8extended((_group_id::bigint << 32) | _lane_id, 7305793389475492354) & -4
$$;

-- The lock of one message that is taken out of its turn.
create or replace function penstock._message_key(_group_id integer, _seq bigint) returns bigint
language sql immutable as $$
    select hashint8extended(_seq, 7305793389475492355 + (_group_id::bigint << 20))
$$;

-- The lock of a shard of an ordered queue, which is read by one transaction at a time.
create or replace function penstock._shard_key(_group_id integer, _shard integer) returns bigint
language sql immutable as $$
    select hashint8extended((_group_id::bigint << 32) | _shard, 7305793389475492356)
$$;

-- The lock that publishes a stretch of positions: the lower 44 bits of the first one, and the length as a number of 15 bits
-- times a power of two, rounded up. Whoever knows the lane can read it.
create or replace function penstock._stretch_key(_group_id integer, _lane_id integer, _first bigint, _length bigint)
returns bigint
language plpgsql immutable as $$
declare
    _power integer := 0;
begin
    while (_length + (1::bigint << _power) - 1) >> _power > 32767 loop
        _power := _power + 1;
    end loop;
    return hashint8extended((_group_id::bigint << 32) | _lane_id, 7305793389475492357)
        # (((_first & 17592186044415) << 20) | (_power << 15) | ((_length + (1::bigint << _power) - 1) >> _power));
end
$$;

-- How this transaction may read a lane now: 'cursor' when it may move it, 'single' when it takes messages one by one and
-- leaves out the others' positions (their lower 44 bits), null when it cannot be said within two seconds. Without _waits
-- also null when another one reads the lane.
create or replace function penstock._enter_lane(
    _group_id integer, _lane_id integer, _brief boolean, _waits boolean, out how text, out others int8multirange
)
language plpgsql as $$
declare
    _key bigint := penstock._lane_key(_group_id, _lane_id);
    _until timestamptz := clock_timestamp() + interval '2 seconds';
    _has_lock boolean;
    _earlier text;
    holder record;
begin
    others := '{}';
    if not _brief then
        select * into holder from penstock._lane_holder(_group_id, _lane_id);
        if holder.pid = pg_backend_pid() and holder.is_done then
            -- It said before, in this transaction, that it is done: others may be overtaking now.
            how := 'single';
            return;
        end if;
    end if;
    _has_lock := pg_try_advisory_xact_lock(_key);
    if not _has_lock and _waits then
        _has_lock := penstock._line_up(_key, '5ms');
    end if;
    while not _has_lock and _waits and clock_timestamp() < _until loop
        select * into holder from penstock._lane_holder(_group_id, _lane_id);
        -- Not a receive that is about to commit, but one that stays open: it is overtaken.
        if holder.is_done and (holder.name = _earlier or holder.is_overtaken)
            and pg_try_advisory_xact_lock_shared(_key + 1) then
            select * into holder from penstock._lane_holder(_group_id, _lane_id);
            if holder.is_done then
                how := 'single';
                others := holder.taken;
                return;
            end if;
        end if;
        _earlier := holder.name;
        _has_lock := penstock._line_up(_key, case when holder.is_done then '5ms' else '100ms' end);
    end loop;
    if not _has_lock then
        return;
    elsif penstock._is_not_overtaken(_key) then
        how := 'cursor';
    else
        how := 'single';
        perform penstock._publish(_group_id, _lane_id);
    end if;
end
$$;

-- Whether nobody overtakes in a lane: then the overtakers' lock can be had. It is given back within the expression that
-- takes it, because a cancellation between two statements would leave a lock of the session behind.
create or replace function penstock._is_not_overtaken(_key bigint) returns boolean
language sql volatile as $$
    select case when pg_try_advisory_lock(_key + 1) then pg_advisory_unlock(_key + 1) else false end
$$;

-- Wait for a lock, but not for long; whether it was had.
create or replace function penstock._line_up(_key bigint, _wait text) returns boolean
language plpgsql set lock_timeout = 0 as $$
begin
    perform set_config('lock_timeout', _wait, true);
    perform pg_advisory_xact_lock(_key);
    return true;
exception when lock_not_available or deadlock_detected then
    return false;
end
$$;

-- The transaction that holds the lock of a lane, whether it has said that it is done, what it has published, and whether
-- somebody overtakes it.
create or replace function penstock._lane_holder(
    _group_id integer, _lane_id integer, out name text, out pid integer, out is_done boolean, out is_overtaken boolean,
    out taken int8multirange
)
language sql volatile as $$
    with held as materialized (
        select l.virtualtransaction as name, l.pid, l.mode, (l.classid::bigint << 32) | l.objid::bigint as key
        from pg_locks as l
        where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
            and l.database = (select d.oid from pg_database as d where d.datname = current_database())
    ),
    published as (
        select (h.code >> 20) & 17592186044415 as first, (h.code & 32767) << ((h.code >> 15) & 31)::integer as length
        from (
            select held.key # hashint8extended((_group_id::bigint << 32) | _lane_id, 7305793389475492357) as code
            from held
            where held.mode = 'ShareLock' and held.name = (
                select one.name from held as one
                where one.key = penstock._lane_key(_group_id, _lane_id) and one.mode = 'ExclusiveLock'
            )
        ) as h
    )
    select one.name, one.pid,
        exists (select from held where held.name = one.name and held.key = penstock._lane_key(_group_id, _lane_id) + 2),
        exists (select from held where held.key = penstock._lane_key(_group_id, _lane_id) + 1 and held.mode = 'ShareLock'),
        coalesce(
            (
                select range_agg(int8range(p.first, p.first + p.length)) from published as p
                where p.length > 0
            ),
            '{}'
        )
    from held as one
    where one.key = penstock._lane_key(_group_id, _lane_id) and one.mode = 'ExclusiveLock'
$$;

-- Say what this transaction took from a lane by moving its cursor, in this receive and in earlier ones, and that it is done.
-- Of many stretches those that lie closest become one. From now on the transaction takes messages one by one: others may
-- overtake it at any moment, and would not know of more.
drop function if exists penstock._publish(integer, integer, bigint);
create or replace function penstock._publish(_group_id integer, _lane_id integer) returns void
language plpgsql as $$
declare
    _own xid8 := pg_current_xact_id_if_assigned();
    _positions int8multirange := coalesce((
        select range_agg(penstock._all(one.first, one.last, one.positions)) from (
            select c.first, c.last, c.positions from penstock.claim as c
            where c.lane_id = _lane_id and c.tx = _own and c.n > 0 and c.group_id = _group_id
            union all
            -- Of several messages in one receive some may have leases of their own, and some have ended.
            select s.first, s.last, s.positions from penstock.reader as g join penstock.step as s using (queue_id)
            where g.group_id = _group_id and s.tx = _own and s.group_id = _group_id
        ) as one
    ), '{}');
begin
    perform pg_advisory_xact_lock_shared(
        penstock._stretch_key(_group_id, _lane_id, min(placed.first), max(placed.next) - min(placed.first))
    )
    from (
        select ranked.first, ranked.next, count(*) filter (where ranked.gap_rank <= 15) over (order by ranked.first) as place
        from (
            select spaced.first, spaced.next, row_number() over (order by spaced.gap desc) as gap_rank
            from (
                select lower(one) as first, upper(one) as next,
                    lower(one) - coalesce(lag(upper(one)) over (order by lower(one)), lower(one)) as gap
                from unnest(_positions) as one
            ) as spaced
        ) as ranked
    ) as placed
    group by placed.place;
    perform pg_advisory_xact_lock_shared(penstock._lane_key(_group_id, _lane_id) + 2);
    -- It ends with the transaction or the savepoint, as the locks do.
    perform set_config('penstock.published', 'on', true);
end
$$;

-- Nobody receives from the queue, or from one group of it, until this transaction ends. Waits for seconds at most; then
-- says which session is in the way.
create or replace function penstock._lock_lanes(q penstock.queue, _group_id integer) returns void
language plpgsql set lock_timeout = '2s' as $$
declare
    _key bigint;
begin
    for _key in select penstock._keys(q, _group_id) loop
        perform pg_advisory_xact_lock(_key);
    end loop;
exception when lock_not_available then
    raise exception using errcode = 'lock_not_available', message = format(
        'queue %s is being received from in an open transaction of session %s', penstock._shown(q.name),
        coalesce((
            select string_agg(distinct coalesce(l.pid::text, 'none (it is prepared)'), ', ') from pg_locks as l
            where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.pid is distinct from pg_backend_pid()
                and (l.classid::bigint << 32) | l.objid::bigint = _key
        ), 'that has ended')
    ), hint = 'Wait until it has ended, or end it with pg_terminate_backend.';
end
$$;

-- The same for one lane of a group.
create or replace function penstock._lock_lane(_group_id integer, _lane_id integer) returns void
language plpgsql set lock_timeout = '2s' as $$
begin
    perform pg_advisory_xact_lock(penstock._lane_key(_group_id, _lane_id) + step) from generate_series(0, 1) as step;
end
$$;

-- The same for all, without waiting; whether they could be locked.
create or replace function penstock._try_lanes(q penstock.queue, _group_id integer) returns boolean
language plpgsql as $$
declare
    _key bigint;
begin
    for _key in select penstock._keys(q, _group_id) loop
        if not pg_try_advisory_xact_lock(_key) then
            return false;
        end if;
    end loop;
    return true;
end
$$;

-- The locks of all who receive from a queue, or from one group of it, in order.
create or replace function penstock._keys(q penstock.queue, _group_id integer) returns setof bigint
language sql stable as $$
    select one.key from (
        select g.group_id, n.lane_id, step as place, penstock._lane_key(g.group_id, n.lane_id) + step as key
        from penstock.reader as g
        join penstock.lane as n using (queue_id)
        cross join generate_series(0, 1) as step
        where g.queue_id = q.queue_id and (_group_id is null or g.group_id = _group_id)
        union all
        select g.group_id, 0, shard, penstock._shard_key(g.group_id, shard)
        from penstock.reader as g
        cross join generate_series(0, q.shards - 1) as shard
        where g.queue_id = q.queue_id and (_group_id is null or g.group_id = _group_id) and q.ordered
    ) as one
    order by one.group_id, one.lane_id, one.place
$$;
