-- Lane locks: which transaction may read a lane of a group. All of them are advisory locks that end with their
-- transaction.
--
-- One transaction at a time may move the cursor of a lane: it holds the lane's lock. While it stays open nobody can see
-- how far it came, so at the end of a receive it publishes what it leased, as locks whose numbers encode the positions,
-- and that it is done. Others then overtake: they leave out what was published, and lease other messages one by one,
-- each under a lock of its own, ahead of the cursor, which skips them later.
--
-- An overtaker takes the overtakers' lock, shared, before it looks at the holder of the lane's lock; a reader takes the
-- lane's lock before it looks for overtakers, and if there are any it leases its messages one by one too. So nobody
-- hands out messages by moving the cursor while somebody overtakes. The holder of the lock then moves the cursor only
-- over messages that were leased one by one and committed, which nobody would lease again: what lies between the cursor
-- and the messages that are still to be leased does not grow. Locks are read before tables: a transaction becomes
-- visible before its locks are released.
--
-- Nobody waits for another transaction without a bound.

-- The lock of a lane. The next number is the lock of overtakers, the one after that the done flag of the holder.
create or replace function penstock._lane_key(_group_id integer, _lane_id integer) returns bigint
language sql immutable as $$
    select hashint8extended((_group_id::bigint << 32) | _lane_id, 7305793389475492354) & -4
$$;

-- The lock of one message that is leased ahead of the cursor.
create or replace function penstock._message_key(_group_id integer, _position bigint) returns bigint
language sql immutable as $$
    select hashint8extended(_position, 7305793389475492355 + (_group_id::bigint << 20))
$$;

-- The lock of a shard of an ordered queue, which one transaction reads at a time.
create or replace function penstock._shard_key(_group_id integer, _shard integer) returns bigint
language sql immutable as $$
    select hashint8extended((_group_id::bigint << 32) | _shard, 7305793389475492356)
$$;

-- The lock that publishes a range of positions: the lower 44 bits of the first one, and the length as a 15-bit number
-- times a power of two, rounded up. It can be decoded with the number of the lane.
create or replace function penstock._range_key(_group_id integer, _lane_id integer, _first bigint, _length bigint)
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

-- How this transaction may read a lane: 'cursor' when it may move the cursor; 'single' when it leases messages one by
-- one and leaves out what other open transactions have published (the lower 44 bits of positions); 'locked' for the
-- same when it holds the lane's lock and so may move the cursor over what is leased already; null when that is
-- undecided after two seconds or, without _waits, when another transaction reads the lane.
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
    if not _brief and exists (
        select from penstock._receive_locks() as l where l.pid = pg_backend_pid() and l.key = _key + 2
    ) then
        -- It said before, in this transaction, that it is done: others may be overtaking now.
        how := 'single';
        others := penstock._published_positions(_group_id, _lane_id);
        return;
    end if;
    _has_lock := pg_try_advisory_xact_lock(_key);
    if not _has_lock and _waits then
        _has_lock := penstock._wait_for_lock(_key, '5ms');
    end if;
    while not _has_lock and _waits and clock_timestamp() < _until loop
        select * into holder from penstock._lane_holder(_group_id, _lane_id);
        -- Not a receive that is about to commit, but one that stays open: it is overtaken.
        if holder.is_done and (holder.name = _earlier or holder.is_overtaken)
            and pg_try_advisory_xact_lock_shared(_key + 1) then
            select * into holder from penstock._lane_holder(_group_id, _lane_id);
            if holder.is_done then
                how := 'single';
                others := penstock._published_positions(_group_id, _lane_id);
                return;
            end if;
        end if;
        _earlier := holder.name;
        _has_lock := penstock._wait_for_lock(_key, case when holder.is_done then '5ms' else '100ms' end);
    end loop;
    if not _has_lock then
        return;
    elsif penstock._is_not_overtaken(_key) then
        how := 'cursor';
    else
        how := 'locked';
        others := penstock._published_positions(_group_id, _lane_id);
        perform penstock._publish_receive(_group_id, _lane_id);
    end if;
end
$$;

-- Whether nobody overtakes in a lane, that is, the overtakers' lock is free. It is released within the expression that
-- acquires it: a cancellation between two statements would leave a session lock behind.
create or replace function penstock._is_not_overtaken(_key bigint) returns boolean
language sql volatile as $$
    select case when pg_try_advisory_lock(_key + 1) then pg_advisory_unlock(_key + 1) else false end
$$;

-- Acquire the lock of a lane if it is free and nobody overtakes: the most common case of _enter_lane, as an expression.
create or replace function penstock._lock_cursor(_key bigint) returns boolean
language sql volatile as $$
    select pg_try_advisory_xact_lock(_key) and penstock._is_not_overtaken(_key)
$$;

-- Wait briefly for a lock; whether it was acquired.
create or replace function penstock._wait_for_lock(_key bigint, _wait text) returns boolean
language plpgsql set lock_timeout = 0 as $$
begin
    perform set_config('lock_timeout', _wait, true);
    perform pg_advisory_xact_lock(_key);
    return true;
exception when lock_not_available or deadlock_detected then
    return false;
end
$$;

-- The transaction that holds the lock of a lane, whether it has published that it is done, and whether somebody
-- overtakes it.
create or replace function penstock._lane_holder(
    _group_id integer, _lane_id integer, out name text, out is_done boolean, out is_overtaken boolean
)
language sql volatile as $$
    with held as materialized (
        select * from penstock._receive_locks() as l
        where l.key between penstock._lane_key(_group_id, _lane_id) and penstock._lane_key(_group_id, _lane_id) + 2
    )
    select one.name,
        exists (select from held where held.name = one.name and held.key = penstock._lane_key(_group_id, _lane_id) + 2),
        exists (select from held where held.key = penstock._lane_key(_group_id, _lane_id) + 1 and held.mode = 'ShareLock')
    from held as one
    where one.key = penstock._lane_key(_group_id, _lane_id) and one.mode = 'ExclusiveLock'
$$;

-- The advisory locks held in this database, with the transactions that hold them.
create or replace function penstock._receive_locks(out name text, out pid integer, out mode text, out key bigint)
returns setof record
language sql volatile as $$
    select l.virtualtransaction, l.pid, l.mode, (l.classid::bigint << 32) | l.objid::bigint
    from pg_locks as l
    where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
        and l.database = (select d.oid from pg_database as d where d.datname = current_database())
$$;

-- The positions that other open transactions have published: those of the holder and of overtakers.
create or replace function penstock._published_positions(_group_id integer, _lane_id integer) returns int8multirange
language sql volatile as $$
    with held as materialized (
        select * from penstock._receive_locks() as l where l.mode = 'ShareLock' and l.pid is distinct from pg_backend_pid()
    ),
    stretch as (
        select (h.code >> 20) & 17592186044415 as first, (h.code & 32767) << ((h.code >> 15) & 31)::integer as length
        from (
            select held.key # hashint8extended((_group_id::bigint << 32) | _lane_id, 7305793389475492357) as code
            from held
            where held.name in (select done.name from held as done where done.key = penstock._lane_key(_group_id, _lane_id) + 2)
        ) as h
    )
    select coalesce(range_agg(int8range(s.first, s.first + s.length)), '{}') from stretch as s where s.length > 0
$$;

-- Publish what this transaction has leased in a lane, in this receive and in earlier ones, and that it is done. Beyond
-- 16 ranges the closest ones are merged. From now on the transaction leases messages one by one: others may overtake it
-- at any moment, and would not know of more.
create or replace function penstock._publish_receive(_group_id integer, _lane_id integer) returns void
language plpgsql as $$
declare
    _own xid8 := pg_current_xact_id_if_assigned();
    _positions int8multirange := coalesce((
        select range_agg(penstock._expand_positions(one.first, one.last, one.positions)) from (
            select c.first, c.last, c.positions from penstock.cursor as c
            where c.lane_id = _lane_id and c.tx = _own and c.n > 0 and c.group_id = _group_id
            union all
            -- Of several messages in one receive some may have leases of their own, and some have ended.
            select s.first, s.last, s.positions from penstock.group as g join penstock.audit as s using (queue_id)
            where g.group_id = _group_id and s.tx = _own and s.group_id = _group_id
        ) as one
    ), '{}');
begin
    perform pg_advisory_xact_lock_shared(
        penstock._range_key(_group_id, _lane_id, min(placed.first), max(placed.next) - min(placed.first))
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

-- Keep everybody from receiving from the queue, or from one group of it, until this transaction ends. Waits two seconds
-- at most; the error names the session that holds the lock.
create or replace function penstock._lock_lanes(q penstock.queue, _group_id integer) returns void
language plpgsql set lock_timeout = '2s' as $$
declare
    _key bigint;
begin
    for _key in select penstock._receive_keys(q, _group_id) loop
        perform pg_advisory_xact_lock(_key);
    end loop;
exception when lock_not_available then
    raise exception using errcode = 'lock_not_available', message = format(
        'queue %s is being received from in an open transaction of session %s', penstock._quote_value(q.name),
        coalesce((
            select string_agg(distinct coalesce(l.pid::text, 'none (it is prepared)'), ', ') from pg_locks as l
            where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.pid is distinct from pg_backend_pid()
                and (l.classid::bigint << 32) | l.objid::bigint = _key
        ), 'that has ended')
    ), hint = 'Wait until it has ended, or end it with pg_terminate_backend.';
end
$$;

-- Lock one lane of a group, as _lock_lanes does.
create or replace function penstock._lock_lane(_group_id integer, _lane_id integer) returns void
language plpgsql set lock_timeout = '2s' as $$
begin
    perform pg_advisory_xact_lock(penstock._lane_key(_group_id, _lane_id) + step) from generate_series(0, 1) as step;
end
$$;

-- Lock all lanes without waiting; whether all were acquired.
create or replace function penstock._try_lock_lanes(q penstock.queue, _group_id integer) returns boolean
language plpgsql as $$
declare
    _key bigint;
begin
    for _key in select penstock._receive_keys(q, _group_id) loop
        if not pg_try_advisory_xact_lock(_key) then
            return false;
        end if;
    end loop;
    return true;
end
$$;

-- The lock numbers of receives from a queue, or from one group of it, in locking order.
create or replace function penstock._receive_keys(q penstock.queue, _group_id integer) returns setof bigint
language sql stable as $$
    select one.key from (
        select g.group_id, n.lane_id, step as place, penstock._lane_key(g.group_id, n.lane_id) + step as key
        from penstock.group as g
        join penstock.lane as n using (queue_id)
        cross join generate_series(0, 1) as step
        where g.queue_id = q.queue_id and (_group_id is null or g.group_id = _group_id)
        union all
        select g.group_id, 0, shard, penstock._shard_key(g.group_id, shard)
        from penstock.group as g
        cross join generate_series(0, q.shards - 1) as shard
        where g.queue_id = q.queue_id and (_group_id is null or g.group_id = _group_id) and q.ordered
    ) as one
    order by one.group_id, one.lane_id, one.place
$$;
