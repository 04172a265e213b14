-- The counts of a group, moved forward by sweeps.

-- Forget chosen ids and addresses of removed messages, so that they may be used again. Rows that an open transaction is
-- reusing are left to it.
create or replace function penstock._forget_removed(q penstock.queue, _after bigint, _upto bigint) returns void
language sql as $$
    delete from penstock.identity where (queue_id, id) in (
        select i.queue_id, i.id from penstock.identity as i
        where i.queue_id = q.queue_id and i.position > _after and i.position <= _upto and not penstock._is_retained(q.queue_id, i.position)
        for update skip locked
    );
    delete from penstock.address where (queue_id, address) in (
        select a.queue_id, a.address from penstock.address as a
        where a.queue_id = q.queue_id and a.position > _after and a.position <= _upto and a.outcome is not null
            and not penstock._is_retained(q.queue_id, a.position)
        for update skip locked
    )
$$;

-- Whether a retry or a dead letter keeps a message.
create or replace function penstock._is_retained(_queue_id integer, _position bigint) returns boolean
language sql stable as $$
    select exists (select 1 from penstock.dead_letter as d where d.queue_id = _queue_id and d.position = _position)
        or exists (
            select 1 from penstock.group as g join penstock.tracked as t using (group_id)
            where g.queue_id = _queue_id and t.position = _position
        )
$$;

-- Fold rows written since the last time into the counts, so that reading them stays cheap. Skipped while another sweep
-- does it.
create or replace function penstock._fold_counts(q penstock.queue) returns void
language plpgsql as $$
declare
    n penstock.lane;
    g penstock.group;
    _snap pg_snapshot;
    _sent bigint;
    _last bigint;
    ended record;
    letters record;
begin
    _snap := penstock._current_snapshot();
    for n in select * from penstock.lane where queue_id = q.queue_id for update skip locked loop
        select count(*), max(one.position) into _sent, _last from (
            select m.tx, m.position from penstock.log as m where m.lane_id = n.lane_id and m.tx >= pg_snapshot_xmax(n.counted)
            union all
            select m.tx, m.position from pg_snapshot_xip(n.counted) as o (x)
            join penstock.log as m on m.lane_id = n.lane_id and m.tx = o.x
        ) as one
        where pg_visible_in_snapshot(one.tx, _snap);
        if _sent > 0 then
            update penstock.lane set sent = sent + _sent, last = greatest(last, _last), counted = _snap
            where lane_id = n.lane_id;
        end if;
    end loop;
    for g in select * from penstock.group where queue_id = q.queue_id for update skip locked loop
        select * into ended from penstock._count_outcomes(g, _snap);
        -- Also when only others were at work, or a group in which nothing ends would have to look at all they ever did.
        if ended.own_entries > 0 or ended.entries > 100 then
            update penstock.group
            set succeeded = ended.succeeded, rejected = ended.rejected, failed = ended.failed,
                lease_expired = ended.lease_expired, expired = ended.expired, cancelled = ended.cancelled,
                failed_attempts = ended.failed_attempts, counted = _snap
            where group_id = g.group_id;
        end if;
        with gone as (delete from penstock.dead_change as c where c.group_id = g.group_id returning c.n)
        select count(*) as changes, coalesce(sum(gone.n), 0) as n into letters from gone;
        if letters.changes > 0 then
            update penstock.group set dead = dead + letters.n where group_id = g.group_id;
        end if;
    end loop;
end
$$;
