-- held -> ready, and live -> expired, for the retries of a group.

-- Track a message by itself from now on, with a copy of it.
create or replace function penstock._track_message(
    _group_id integer, msg penstock.message_row, _state text, _attempt integer, _until_at bigint, _leased_at bigint
) returns void
language sql as $$
    insert into penstock.tracked (
        group_id, position, lane_id, priority, state, attempt, until_at, token, leased_at, consumer, reason, created_at, id,
        content_type, headers, expires_at, deadline_at, address, key, batch_id, created_by, available_at, payload
    ) values (
        _group_id, msg.position, msg.lane_id, msg.priority, _state, _attempt, _until_at, msg.token, _leased_at, msg.consumer,
        msg.reason, msg.created_at, msg.id, msg.content_type, msg.headers, msg.expires_at, msg.deadline_at, msg.address, msg.key,
        msg.batch_id, msg.created_by, msg.available_at, msg.payload
    )
$$;

-- held -> ready for retries of the group that are due.
create or replace function penstock._promote_retries(
    q penstock.queue, g penstock.group, _limit integer, _now bigint
) returns integer
language plpgsql as $$
declare
    t record;
    _count integer := 0;
begin
    for t in
        update penstock.tracked set state = 'ready'
        where group_id = g.group_id and position in (
            select position from penstock.tracked
            where group_id = g.group_id and state = 'held' and until_at <= _now
            order by until_at, position
            limit _limit
            for update skip locked
        )
        returning position, attempt
    loop
        _count := _count + 1;
        perform penstock._record_audit(
            q.queue_id, g.group_id, 'due', 'ready', t.position, 'system', null, t.attempt, null, _now
        );
    end loop;
    return _count;
end
$$;

-- held, ready -> expired for retries of the group.
create or replace function penstock._expire_retries(q penstock.queue, g penstock.group, _now bigint) returns integer
language plpgsql as $$
declare
    t penstock.tracked;
    _count integer := 0;
begin
    for t in
        delete from penstock.tracked where (group_id, position) in (
            select group_id, position from penstock.tracked
            where group_id = g.group_id and state <> 'leased'
                and (expires_at <= _now or (q.delivery = 'at_most_once' and deadline_at <= _now))
            order by position
            for update skip locked
        )
        returning *
    loop
        _count := _count + 1;
        perform penstock._end_message(
            q, g, penstock._tracked_row(t), case when t.expires_at <= _now then 'expire' else 'deadline' end,
            'expired', 'system', null, t.attempt, null, true, _now
        );
    end loop;
    return _count;
end
$$;

-- Promote due retries and reclaim lapsed leases, at least _least of them if there are so many and at most _limit.
-- Returns whether retries may be ready.
create or replace function penstock._run_due_retries(
    q penstock.queue, g penstock.group, _least integer, _limit integer, _lapsed boolean, _now bigint
) returns boolean
language plpgsql as $$
declare
    due record;
begin
    select
        exists (
            select 1 from penstock.tracked where group_id = g.group_id and state = 'held' and until_at <= _now
        ) as retries,
        _lapsed or exists (
            select 1 from penstock.tracked where group_id = g.group_id and state = 'leased' and until_at <= _now
        ) as lapsed,
        exists (select 1 from penstock.tracked where group_id = g.group_id and state = 'ready') as ready
    into due;
    if due.retries then
        perform penstock._promote_retries(q, g, _limit, _now);
    end if;
    if due.lapsed then
        perform penstock._reclaim_leases(q, g, null, _now, _least, _limit);
    end if;
    if due.retries or due.lapsed or due.ready then
        perform penstock._expire_retries(q, g, _now);
        return true;
    end if;
    return false;
end
$$;
