-- The maintenance pass: everything that time does to messages, and giving room back.

-- One pass over all queues, in one transaction: what it locks in a queue stays locked until its end. So what makes a receive
-- wait, which is seldom necessary, is done last; and nobody is waited for. Whoever can commit in between calls
-- penstock.sweep_queues() instead. The ticks of schedules are computed by the Python sweep.
create or replace function penstock.sweep()
returns table (
    reclaimed bigint, promoted bigint, expired bigint, trimmed bigint, purged bigint, removed_consumers bigint
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
    _decided bigint := penstock.decide();
    _now bigint := penstock.now_us();
    q penstock.queue;
    one record;
begin
    select 0, 0, 0, 0, 0 into reclaimed, promoted, expired, trimmed, purged;
    removed_consumers := penstock.sweep_consumers();
    for q in select * from penstock.queue order by queue_id loop
        select * into one from penstock._pass_time(q, _now);
        reclaimed := reclaimed + one.reclaimed;
        promoted := promoted + one.promoted;
        expired := expired + one.expired;
        purged := purged + penstock._purge_old(q, _now);
        perform penstock._fold(q, _now);
        perform penstock._delete_trimmed(q, 10000, _now);
    end loop;
    for q in select * from penstock.queue order by queue_id loop
        expired := expired + penstock._expire_all_unread(q, _now);
        trimmed := trimmed + penstock._trim(q, _decided, _now);
    end loop;
    return next;
end
$$;

-- The same with a commit after each queue, and as often as there is something to delete: for pg_cron, or whoever calls it
-- outside of a transaction. It can have no settings of its own, so every name in it is a full one.
create or replace procedure penstock.sweep_queues()
language plpgsql as $$
declare
    _decided bigint := penstock.decide();
    _name text;
begin
    perform penstock.sweep_consumers();
    commit;
    for _name in select q.name from penstock.queue as q order by q.queue_id loop
        perform penstock.sweep_queue(_name, _decided);
        commit;
        while penstock.delete_trimmed(_name) operator(pg_catalog.>) 0 loop
            commit;
        end loop;
    end loop;
end
$$;

-- Remove consumers that are gone.
create or replace function penstock.sweep_consumers() returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._remove_missing(penstock.now_us());
end
$$;

-- A position up to which everything is decided once all transactions before this one have ended. Whoever takes positions
-- takes a transaction number first, so those who took the positions up to _seq have lower numbers than the one that this
-- transaction is given now. (The end of a snapshot would not do: transactions beyond it may have begun, and sent.) One that
-- had its number before cannot tell.
create or replace function penstock._note_moment() returns void
language plpgsql as $$
declare
    _seq bigint := penstock._last_position();
begin
    perform penstock._check_cluster();
    if pg_current_xact_id_if_assigned() is null and not exists (select 1 from penstock.moment where seq = _seq) then
        insert into penstock.moment (seq, tx) values (_seq, pg_current_xact_id());
    end if;
end
$$;

-- The last position up to which everything is decided. Transactions that have just begun get a moment to end; nobody waits
-- for long ones, which many moments have waited for already.
create or replace function penstock._decided() returns bigint
language plpgsql as $$
declare
    _seq bigint;
    _open integer;
begin
    for attempt in 1..10 loop
        select max(seq) filter (where tx <= pg_snapshot_xmin(pg_current_snapshot())),
            count(*) filter (where tx > pg_snapshot_xmin(pg_current_snapshot()))
        into _seq, _open
        from penstock.moment;
        exit when _open = 0 or _open > 3;
        perform pg_sleep(0.002);
    end loop;
    -- The older ones say where long queues begin, see penstock._unfinished: fewer are kept the older they are.
    if (select count(*) from penstock.moment) > 1000 then
        delete from penstock.moment where seq in (
            select placed.seq from (
                select seq, row_number() over (order by seq) as place, count(*) over () as places from penstock.moment
            ) as placed
            where placed.place <= placed.places - 500 and placed.place % 2 = 0
        );
    end if;
    return coalesce(_seq, 0);
end
$$;

-- Up to here everything is decided: asked once for a whole sweep, because it may wait a little. It stays so.
create or replace function penstock.decide() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- Before this transaction has a number.
    perform penstock._note_moment();
    return penstock._decided();
end
$$;

-- One queue: promote, reclaim, expire, purge, trim, delete. Nothing can appear at or before _decided.
create or replace function penstock.sweep_queue(
    _queue text, _decided bigint default null,
    out promoted integer, out reclaimed integer, out expired integer, out trimmed bigint, out purged integer,
    out deleted bigint
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    _now bigint := penstock.now_us();
    q penstock.queue;
begin
    _decided := coalesce(_decided, penstock.decide());
    select * into q from penstock.queue where name = _queue;
    if not found then
        select 0, 0, 0, 0, 0, 0 into promoted, reclaimed, expired, trimmed, purged, deleted;
        return;
    end if;
    select * into promoted, reclaimed, expired from penstock._pass_time(q, _now);
    expired := expired + penstock._expire_all_unread(q, _now);
    purged := penstock._purge_old(q, _now);
    trimmed := penstock._trim(q, _decided, _now);
    -- After trimming: only what has been counted is deleted.
    perform penstock._fold(q, _now);
    deleted := penstock._delete_trimmed(q, 10000, _now);
end
$$;

-- Delete some more of what is past retention in a queue: how many rows went.
create or replace function penstock.delete_trimmed(_queue text) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    q penstock.queue;
begin
    select * into q from penstock.queue where name = _queue;
    return coalesce(penstock._delete_trimmed(q, 10000, penstock.now_us()), 0);
end
$$;

-- What the time that has passed does to the messages of a queue, but for those that nobody has read: held ones are due or
-- over, retries are due, leases have ended.
create or replace function penstock._pass_time(
    q penstock.queue, _now bigint, out promoted integer, out reclaimed integer, out expired integer
)
language plpgsql as $$
declare
    g penstock.reader;
    h penstock.held;
    _some integer;
begin
    promoted := 0;
    reclaimed := 0;
    expired := 0;
    loop
        _some := cardinality(penstock._promote(q, 1000, _now));
        promoted := promoted + _some;
        exit when _some < 1000 or promoted >= 10000;
    end loop;
    -- One at a time: a batch ends, and sends its end message, when no member is held any more.
    for h in
        select * from penstock.held
        where queue_id = q.queue_id and (expires_at <= _now or (q.delivery = 'at_most_once' and deadline_at <= _now))
        order by held_id
        for update skip locked
    loop
        delete from penstock.held where held_id = h.held_id;
        perform penstock._withdraw(
            q, h, case when h.expires_at <= _now then 'expire' else 'deadline' end, 'expired', null, _now
        );
        expired := expired + 1;
    end loop;
    for g in select * from penstock.reader where queue_id = q.queue_id and stream_mark is null order by group_id loop
        promoted := promoted + penstock._make_ready(q, g, 1000, _now);
        -- Bounded, or one transaction would have to copy all that a large receive left behind; the next sweep goes on.
        for round in 1..10 loop
            _some := penstock._reclaim(q, g, null, _now, 1, 1000);
            reclaimed := reclaimed + _some;
            exit when _some = 0;
        end loop;
        expired := expired + penstock._expire_tracked(q, g, _now);
    end loop;
    if promoted + reclaimed > 0 then
        perform penstock._wake(q.queue_id);
    end if;
    perform penstock._door_sweep(q.queue_id, _now);
end
$$;

-- Unread messages of all groups whose time has passed.
create or replace function penstock._expire_all_unread(q penstock.queue, _now bigint) returns bigint
language sql as $$
    select coalesce(sum(penstock._expire_unread(q, g, _now)), 0)::bigint
    from penstock.reader as g where g.queue_id = q.queue_id and g.stream_mark is null
$$;

-- Unread messages of a group whose time has passed since the last look. The lanes are locked only when there are any:
-- nobody hands them out meanwhile.
create or replace function penstock._expire_unread(q penstock.queue, g penstock.reader, _now bigint) returns integer
language plpgsql as $$
declare
    over record;
    m penstock.log;
    _count integer := 0;
    _is_primary boolean := g.name is not distinct from q.primary_group;
begin
    if exists (select 1 from penstock._overdue(q, g, _now)) then
        if not penstock._try_lanes(q, g.group_id) then
            -- Somebody receives: the next sweep looks again.
            return 0;
        end if;
        -- Where the log begins may have been moved while this one waited.
        select * into q from penstock.queue where queue_id = q.queue_id;
        for over in select * from penstock._overdue(q, g, _now) as one order by one.seq loop
            select * into m from penstock.log where seq = over.seq and lane_id = over.lane_id;
            insert into penstock.skip (group_id, seq) values (g.group_id, over.seq);
            perform penstock._end(
                q, g, penstock._as_flight(m, over.priority, null, null), over.event, 'expired', 'system', null, 0, null,
                _is_primary, _now
            );
            _count := _count + 1;
        end loop;
    end if;
    -- Not written down by every sweep: looking again at the last minute is cheaper than a commit.
    if _count > 0 or _now - g.expired_upto > 60000000 then
        -- Another transaction may hold the row for long; then the next sweep writes it down.
        update penstock.reader set expired_upto = _now where group_id = (
            select group_id from penstock.reader where group_id = g.group_id for update skip locked
        );
    end if;
    return _count;
end
$$;

create or replace function penstock._overdue(q penstock.queue, g penstock.reader, _now bigint)
returns table (seq bigint, lane_id integer, priority integer, event text)
language sql stable rows 10 as $$
    select m.seq, m.lane_id, n.priority, case when m.expires_at <= _now then 'expire' else 'deadline' end
    from (
        select * from penstock.log where expires_at > g.expired_upto and expires_at <= _now
        union all
        select * from penstock.log
        where q.delivery = 'at_most_once' and deadline_at > g.expired_upto and deadline_at <= _now
            and (expires_at is null or expires_at > _now or expires_at <= g.expired_upto)
    ) as m
    join penstock.lane as n using (lane_id)
    where n.queue_id = q.queue_id and n.priority >= 0
        and not penstock._is_read(
            penstock._cursor(g.group_id, m.lane_id), m.tx, m.seq, q.trimmed_position
        )
        and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = m.seq)
$$;
