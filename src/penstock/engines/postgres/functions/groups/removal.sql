-- Removing a group with everything that it keeps.

-- Remove a group with everything it recorded; whether it existed.
create or replace function penstock.forget(queue text, "group" text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue;
    g penstock.group;
begin
    select * into q from penstock.queue where name = forget.queue;
    select * into g from penstock.group where queue_id = q.queue_id and name = forget."group";
    if g.group_id is null then
        return false;
    end if;
    if g.name is not distinct from q.primary_group then
        raise exception using errcode = 'PN100', message = format(
            'group %s is the primary one of queue %s: it cannot be removed', penstock._quote_value(g.name),
            penstock._quote_value(q.name)
        );
    end if;
    perform penstock._lock_lanes(q, g.group_id);
    update penstock.queue set trail_mark = nullif(penstock.horizon(q.name, 'audit'), '0') where queue_id = q.queue_id;
    delete from penstock.audit where queue_id = q.queue_id and group_id = g.group_id;
    perform penstock._delete_groups(array[g.group_id]);
    -- Receivers that wait for the group are refused.
    perform penstock._wake_receivers(q.queue_id);
    return true;
end
$$;

-- Delete groups and everything that is kept for them, except their audit entries.
create or replace function penstock._delete_groups(_groups integer[]) returns void
language sql as $$
    select penstock._flush_groups(_groups);
    delete from penstock.cursor where group_id = any (_groups);
    delete from penstock.dead_change where group_id = any (_groups);
    delete from penstock.consumer where group_id = any (_groups);
    delete from penstock.removed_consumer where group_id = any (_groups);
    delete from penstock.group where group_id = any (_groups)
$$;

-- Delete the leases, retries, skips and dead letters of groups.
create or replace function penstock._flush_groups(_groups integer[]) returns void
language sql as $$
    delete from penstock.lease where group_id = any (_groups);
    delete from penstock.tracked where group_id = any (_groups);
    delete from penstock.skip where group_id = any (_groups);
    delete from penstock.overtaken where group_id = any (_groups);
    delete from penstock.dead_letter where group_id = any (_groups)
$$;

-- Drop a former primary group that never received anything: only the primary group exists before its first receive.
create or replace function penstock._drop_unused_group(q penstock.queue, _name text) returns void
language plpgsql as $$
declare
    g penstock.group;
begin
    select * into g from penstock.group where queue_id = q.queue_id and name = _name and stream_mark is null;
    if not found then
        return;
    end if;
    perform penstock._lock_lanes(q, g.group_id);
    delete from penstock.group as r
    where r.group_id = g.group_id
        and not exists (select 1 from penstock.cursor as c where c.group_id = r.group_id)
        and not exists (select 1 from penstock.tracked as t where t.group_id = r.group_id)
        and not exists (select 1 from penstock.consumer as c where c.group_id = r.group_id)
        and not exists (select 1 from penstock.skip as s where s.group_id = r.group_id)
        and not exists (select 1 from penstock.dead_letter as d where d.group_id = r.group_id)
        and r.undone_succeeded + r.undone_rejected + r.undone_failed + r.undone_lease_expired + r.undone_expired
            + r.undone_cancelled = 0
        and not exists (
            select 1 from penstock._count_outcomes(r) as e
            where e.succeeded + e.rejected + e.failed + e.lease_expired + e.expired + e.cancelled + e.failed_attempts > 0
        );
end
$$;
