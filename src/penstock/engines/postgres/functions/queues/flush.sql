-- Flush and clear: ending every live message of a queue.

-- Delete the audit trail of a queue that is emptied and reset the counts of its groups. Outcomes up to the last deleted
-- entry are kept in the monotonic counters, in one statement, so that none is missed or counted twice.
create or replace function penstock._flush_audit(_queue_id integer, _snap pg_snapshot) returns void
language sql as $$
    with gone as (delete from penstock.audit where queue_id = _queue_id)
    update penstock.group as g
    set undone_succeeded = g.undone_succeeded + e.succeeded, undone_rejected = g.undone_rejected + e.rejected,
        undone_failed = g.undone_failed + e.failed, undone_lease_expired = g.undone_lease_expired + e.lease_expired,
        undone_expired = g.undone_expired + e.expired, undone_cancelled = g.undone_cancelled + e.cancelled,
        failed_attempts = e.failed_attempts,
        succeeded = 0, rejected = 0, failed = 0, lease_expired = 0, expired = 0, cancelled = 0, counted = _snap
    from penstock.group as r
    cross join lateral penstock._count_outcomes(r) as e
    where r.queue_id = _queue_id and g.group_id = r.group_id
$$;

-- Remove every message and end all leases. Returns the number of messages. Concurrent sends stay.
create or replace function penstock.flush(queue text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue;
    g penstock.group;
    n penstock.lane;
    c penstock.cursor;
    _snap pg_snapshot;
    _now bigint := penstock.now_us();
    _count bigint;
    _held bigint;
    _tx bigint;
    _log_mark text;
    _trail_mark text;
    _visiting bigint[];
    _left bigint := penstock._flush_remaining(flush.queue);
begin
    select * into q from penstock.queue where name = flush.queue for update;
    if not found then
        return _left;
    end if;
    perform penstock._lock_lanes(q, null);
    perform penstock._abandon_batches(q.queue_id, q.name, _now);
    _visiting := penstock._remove_members_of_queue(q.queue_id);
    _snap := penstock._current_snapshot();
    perform penstock._keep_witnesses(q, 9223372036854775807, max(m.tx), max(m.position))
    from penstock.lane as n join penstock.log as m using (lane_id)
    where n.queue_id = q.queue_id and pg_visible_in_snapshot(m.tx, _snap);
    _log_mark := penstock.horizon(q.name, 'messages');
    _trail_mark := penstock.horizon(q.name, 'audit');
    with gone as (
        delete from penstock.log as l
        where l.lane_id in (select lane_id from penstock.lane where queue_id = q.queue_id)
            and pg_visible_in_snapshot(l.tx, _snap)
        returning l.position, l.tx
    )
    select count(*) filter (where position > q.trimmed_position), max(tx::text::bigint) into _count, _tx from gone;
    -- What this transaction has sent itself is not visible in the snapshot, but nobody else has seen it.
    with gone as (
        delete from penstock.log as l
        where l.lane_id in (select lane_id from penstock.lane where queue_id = q.queue_id)
            and l.tx = pg_current_xact_id_if_assigned()
        returning 1
    )
    select _count + count(*) into _count from gone;
    update penstock.queue
    set trimmed_tx = greatest(trimmed_tx, _tx::text::xid8), log_mark = nullif(_log_mark, '0'),
        trail_mark = nullif(_trail_mark, '0')
    where queue_id = q.queue_id;
    if _tx is not null then
        delete from penstock.removal where queue_id = q.queue_id;
        perform penstock._record_removal(q.queue_id, '0', 0, _tx::text::xid8, 9223372036854775807);
    end if;
    with gone as (delete from penstock.held where queue_id = q.queue_id returning 1)
    select count(*) into _held from gone;
    perform penstock._flush_groups(array(select group_id from penstock.group where queue_id = q.queue_id));
    perform penstock._delete_batches(q.queue_id);
    perform penstock._flush_audit(q.queue_id, _snap);
    delete from penstock.identity where queue_id = q.queue_id;
    delete from penstock.address where queue_id = q.queue_id;
    delete from penstock.finished where queue_id = q.queue_id;
    for g in select * from penstock.group where queue_id = q.queue_id loop
        for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
            c := penstock._get_cursor(g.group_id, n.lane_id);
            continue when c.number = 0 and g.stream_mark is not null;
            c.prev := _snap;
            c.snap := _snap;
            c.used_up := true;
            c.above := 0;
            c.passed := 0;
            perform penstock._move_cursor(g.group_id, n.lane_id, c, 0, '{}', null, c.token, 0, _now);
        end loop;
    end loop;
    -- Not the cursors of lanes that were made after these were locked: their messages stay.
    delete from penstock.cursor
    where n > 0 and lane_id in (select lane_id from penstock.lane where queue_id = q.queue_id)
        and (pg_visible_in_snapshot(tx, _snap) or tx = pg_current_xact_id_if_assigned());
    update penstock.lane set trimmed = 0, sent = 0, counted = _snap where queue_id = q.queue_id;
    update penstock.group
    set stream_mark = case stream_table when 'messages' then _log_mark when 'audit' then _trail_mark end
    where queue_id = q.queue_id;
    perform penstock._end_batch_if_done(one, _now) from unnest(_visiting) as one;
    return _count + _held + _left;
end
$$;

-- Flush the queue and remove all its groups, the primary one too; the policy stays. Returns whether there was anything
-- to remove. The next send creates the primary group again.
create or replace function penstock.clear(queue text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
    _count bigint := penstock.flush(clear.queue);
    _queue_id integer;
    _gone integer[];
begin
    select queue_id into _queue_id from penstock.queue where name = clear.queue;
    update penstock.queue set primary_group_id = null where queue_id = _queue_id and primary_group_id is not null;
    _gone := array(select group_id from penstock.group where queue_id = _queue_id);
    perform penstock._delete_groups(_gone);
    -- Receivers that wait for one of the groups are refused.
    if _queue_id is not null then
        perform penstock._wake_receivers(_queue_id);
    end if;
    return _count > 0 or _gone <> '{}';
end
$$;
