-- Rebase: a dump that was restored into another cluster has the transaction numbers of the first one.

-- Refuse to work in a restored store before `penstock migrate`: new messages could count as read, and live ones as
-- finished. The cluster is queried once per session; calls that look up the store with their queue call this only when
-- the session does not know it.
create or replace function penstock._check_cluster() returns void
language plpgsql as $$
declare
    _own text := nullif(current_setting('penstock.cluster', true), '');
begin
    if _own is null then
        _own := set_config('penstock.cluster', (select system_identifier::text from pg_control_system()), false);
    end if;
    if exists (select 1 from penstock.store as s where s.system_identifier::text <> _own) then
        raise exception using errcode = 'PN400',
            message = 'this store was restored from another server, whose transaction numbers differ: run `penstock migrate`';
    end if;
end
$$;

-- Give every message a transaction number of the past, and place the cursors as they were: behind all messages up to
-- the first unread one, skipping those beyond it that were read. True when there was something to do.
create or replace function penstock._rebase_store() returns boolean
language plpgsql as $$
declare
    _identifier bigint := (select system_identifier from pg_control_system());
    _past constant xid8 := '2';
    _snap constant pg_snapshot := '3:3:';
    q penstock.queue;
    g penstock.group;
    n penstock.lane;
    c penstock.cursor;
    _first bigint;
    _now bigint := penstock.now_us();
begin
    if exists (select 1 from penstock.store where system_identifier = _identifier) then
        return false;
    end if;
    delete from penstock.overtaken;
    update penstock.lane as l set sent = penstock._count_sent(l), last = penstock._lane_end(l);
    update penstock.group as r
    set (succeeded, rejected, failed, lease_expired, expired, cancelled, failed_attempts)
        = (
            select e.succeeded, e.rejected, e.failed, e.lease_expired, e.expired, e.cancelled, e.failed_attempts
            from penstock._count_outcomes(r) as e
        );
    -- The audit trail by entries, while transaction numbers still define the order.
    update penstock.queue as u
    set trail_mark = case when u.trail_mark is not null then penstock._mark_by_entry(u, u.trail_mark) end,
        trimmed_tx = case when u.trimmed_position > 0 then _past end,
        trimmed_rows = case when u.trimmed_position > 0 then array[row (_past, u.trimmed_position, 0)::penstock.witness] end,
        removed_tx = case when u.removed_tx is not null then _past end,
        log_mark = null;
    update penstock.group as r set stream_mark = penstock._mark_by_entry(u, r.stream_mark)
    from penstock.queue as u where u.queue_id = r.queue_id and r.stream_table = 'audit';
    for q in select * from penstock.queue loop
        for g in
            select * from penstock.group where queue_id = q.queue_id and stream_table is distinct from 'audit'
        loop
            for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
                if g.stream_mark is not null then
                    c := penstock._mark_as_cursor(g.stream_mark);
                else
                    c := penstock._get_cursor(g.group_id, n.lane_id);
                    continue when c.number = 0;
                end if;
                select min(m.position) into _first from penstock.log as m
                where m.lane_id = n.lane_id and m.position > q.trimmed_position
                    and not penstock._is_behind_cursor(c, m.tx, m.position, q.trimmed_position);
                if g.stream_mark is not null then
                    update penstock.group
                    set stream_mark = case when _first is null then penstock._make_mark(_snap)
                        else format('1:1:/%s/0/0/%s/f', _snap, _first - 1) end
                    where group_id = g.group_id;
                    continue;
                end if;
                if _first is not null then
                    insert into penstock.skip (group_id, position)
                    select g.group_id, m.position from penstock.log as m
                    where m.lane_id = n.lane_id and m.position > _first
                        and penstock._is_behind_cursor(c, m.tx, m.position, q.trimmed_position)
                    on conflict do nothing;
                end if;
                c.prev := '1:1:';
                c.snap := _snap;
                c.used_up := _first is null;
                c.at_tx := '0';
                c.at_position := 0;
                c.above := coalesce(_first - 1, 0);
                -- Skipped messages are counted as read when the cursor passes them.
                select n.trimmed + count(*) into c.passed from penstock.log as m
                where m.lane_id = n.lane_id and m.position > q.trimmed_position and (_first is null or m.position < _first);
                perform penstock._move_cursor(g.group_id, n.lane_id, c, 0, '{}', null, c.token, 0, _now);
            end loop;
        end loop;
    end loop;
    update penstock.log set tx = _past;
    update penstock.cursor set tx = _past;
    update penstock.audit set tx = _past;
    update penstock.removed set tx = _past;
    update penstock.removal set first_tx = _past, last_tx = _past;
    update penstock.lane set counted = _snap;
    update penstock.deletion set tx = '0', position = 0;
    update penstock.group set counted = _snap;
    delete from penstock.decided_position;
    update penstock.store set system_identifier = _identifier, epoch = (random() * 4611686018427387903)::bigint;
    return true;
end
$$;

-- A mark of the audit trail that has passed the same entries, without naming a transaction.
create or replace function penstock._mark_by_entry(q penstock.queue, _mark text) returns text
language sql stable as $$
    select case when max(one.entry) is null then '0' else format('1:1:/3:3:/0/0/%s/f', max(one.entry)) end
    from penstock._mark_as_cursor(_mark) as c
    cross join lateral (
        select s.entry from penstock.audit as s
        where s.queue_id = q.queue_id and penstock._is_behind_cursor(c, s.tx, s.entry, 0)
        union all
        select t.entry from penstock.lane as n join penstock.cursor as t using (lane_id)
        where n.queue_id = q.queue_id and penstock._is_behind_cursor(c, t.tx, t.entry, 0)
    ) as one
$$;
