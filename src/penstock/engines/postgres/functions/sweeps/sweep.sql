-- The sweep: time-driven transitions of messages, retention and deletion.

-- One pass over all queues in one transaction. Locks are held until its end, so the steps that can make a receive wait
-- come last, and it waits for nobody. Callers that can commit in between call penstock.sweep_queues(). The ticks of
-- schedules are computed by the Python sweep.
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
        select * into one from penstock._apply_time(q, _now);
        reclaimed := reclaimed + one.reclaimed;
        promoted := promoted + one.promoted;
        expired := expired + one.expired;
        purged := purged + penstock._purge_old_dead_letters(q, _now);
        perform penstock._fold_counts(q);
        perform penstock._delete_trimmed(q, 10000, _now);
    end loop;
    for q in select * from penstock.queue order by queue_id loop
        expired := expired + penstock._expire_all_unread(q, _now);
        trimmed := trimmed + penstock._trim_queue(q, _decided, _now);
    end loop;
    return next;
end
$$;

-- One pass with a commit after each queue, repeated while there is something to delete: for pg_cron and callers outside
-- a transaction. Time-driven transitions of all queues come first; deletion stops in time for the next minute's run. A
-- procedure that commits can have no settings, so all names are qualified.
create or replace procedure penstock.sweep_queues()
language plpgsql as $$
declare
    _until timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) interval '45 seconds';
    _decided bigint := penstock.decide();
    _name text;
begin
    perform penstock.sweep_consumers();
    commit;
    for _name in select q.name from penstock.queue as q order by q.queue_id loop
        perform penstock.sweep_queue(_name, _decided);
        commit;
    end loop;
    for _name in select q.name from penstock.queue as q order by q.queue_id loop
        while penstock.delete_trimmed(_name) operator(pg_catalog.>) 0 loop
            commit;
            exit when pg_catalog.clock_timestamp() operator(pg_catalog.>) _until;
        end loop;
    end loop;
end
$$;

-- Remove dead consumers and the rest of deleted queues. Returns the number of consumers.
create or replace function penstock.sweep_consumers() returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock._sweep_deleted();
    return penstock._remove_dead_consumers(penstock.now_us());
end
$$;

-- Sweep one queue: promote, reclaim, expire, purge, trim, delete. With _decided, the answer of penstock.decide() at the
-- start of a sweep of several queues, it does not decide again; it trims nothing beyond what this server has decided.
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
    perform penstock._check_cluster();
    _decided := coalesce(_decided, penstock.decide());
    _decided := least(_decided, penstock._decided_position());
    select * into q from penstock.queue where name = _queue;
    if not found then
        select 0, 0, 0, 0, 0, 0 into promoted, reclaimed, expired, trimmed, purged, deleted;
        return;
    end if;
    select * into promoted, reclaimed, expired from penstock._apply_time(q, _now);
    expired := expired + penstock._expire_all_unread(q, _now);
    purged := penstock._purge_old_dead_letters(q, _now);
    trimmed := penstock._trim_queue(q, _decided, _now);
    -- After trimming: only rows that have been counted are deleted.
    perform penstock._fold_counts(q);
    deleted := penstock._delete_trimmed(q, 10000, _now);
end
$$;

-- Delete some more rows of a queue that are past retention. Returns how many.
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

-- Apply the time that has passed to a queue, except to unread messages: promote or expire held messages, promote
-- retries, reclaim leases.
create or replace function penstock._apply_time(
    q penstock.queue, _now bigint, out promoted integer, out reclaimed integer, out expired integer
)
language plpgsql as $$
declare
    g penstock.group;
    h penstock.held;
    _some integer;
begin
    promoted := 0;
    reclaimed := 0;
    expired := 0;
    perform penstock._finish_held_removals(q.queue_id, _now - 60000000);
    perform penstock._check_batches(q.queue_id, _now);
    loop
        _some := cardinality(penstock._promote_held(q, 1000, _now));
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
        perform penstock._end_held(
            q, h, case when h.expires_at <= _now then 'expire' else 'deadline' end, 'expired', null, _now
        );
        expired := expired + 1;
    end loop;
    for g in select * from penstock.group where queue_id = q.queue_id and stream_mark is null order by group_id loop
        promoted := promoted + penstock._promote_retries(q, g, 1000, _now);
        -- Bounded, or one transaction would have to copy all that a large receive left behind; the next sweep goes on.
        for round in 1..10 loop
            _some := penstock._reclaim_leases(q, g, null, _now, 1, 1000);
            reclaimed := reclaimed + _some;
            exit when _some = 0;
        end loop;
        expired := expired + penstock._expire_retries(q, g, _now);
    end loop;
    if promoted + reclaimed > 0 then
        perform penstock._wake_receivers(q.queue_id);
    end if;
    perform penstock._compat_sweep(q.queue_id, _now);
end
$$;

-- The time of the last claimed sweep. A sequence, because it is written every second and must leave no dead rows.
create sequence if not exists penstock.swept_at as bigint minvalue 0 start 0;

-- Claim a sweep, unless one was claimed within that time. A clock that was set back must not stop the sweeps until it
-- has caught up.
create or replace function penstock.claim_sweep(every_seconds double precision) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _now bigint := penstock.now_us();
    _again boolean;
begin
    for _again in values (false), (true) loop
        if exists (
            select from penstock.swept_at as s
            where _now >= s.last_value and _now - s.last_value < every_seconds * 1000000
        ) then
            return false;
        end if;
        -- The first check takes no lock; a claim checks again under it.
        if not _again and not pg_try_advisory_xact_lock(hashtextextended('penstock.claim_sweep', 0)) then
            return false;
        end if;
    end loop;
    perform setval('penstock.swept_at', _now);
    return true;
end
$$;
