-- The members of a batch, and the end of the batch with its last member.

-- The batch that a message joins, created when there is none. A batch that has ended accepts no members and is not
-- created again silently: nobody would start it. The row is share-locked until the transaction ends, so that a
-- cancellation finds all members, and the end of the last member sees this one.
create or replace function penstock._join_batch(q penstock.queue, _name text, _after bigint, _now bigint)
returns penstock.batch
language plpgsql as $$
declare
    b penstock.batch := penstock._ensure_batch(q, _name, _after, _now);
begin
    -- It may have ended meanwhile, and be gone.
    select * into b from penstock.batch where batch_id = b.batch_id for share;
    if not found then
        b.state := 'finished';
    end if;
    if b.state in ('cancelling', 'finished', 'cancelled') then
        raise exception using errcode = 'PN203', message = format(
            'batch %s of queue %s %s and takes no more messages%s', penstock._quote_value(_name), penstock._quote_value(q.name),
            case b.state when 'cancelling' then 'was cancelled' else 'is ' || b.state end,
            case when b.state <> 'cancelling' then ': open a new one of that name '
                '(queue.batch, batch_open, QBATCH OPEN, penstock batch open)' end
        );
    end if;
    return b;
end
$$;

-- Join a batch that may belong to another queue.
create or replace function penstock._join_batch_of_queue(
    q penstock.queue, _name text, _after bigint, _owner text, _now bigint
) returns penstock.batch
language plpgsql as $$
declare
    b penstock.batch;
begin
    if _owner is null or _owner = q.name then
        return penstock._join_batch(q, _name, _after, _now);
    end if;
    if q.primary_group is null then
        raise exception using errcode = 'PN100', message = format(
            'queue %s has no primary group: its part of batch %s could not end', penstock._quote_value(q.name),
            penstock._quote_value(_name)
        );
    end if;
    b := penstock._join_batch(penstock._ensure_queue(penstock._check_name('batch_queue', _owner)), _name, _after, _now);
    insert into penstock.batch_queue (batch_id, queue_id) values (b.batch_id, q.queue_id) on conflict do nothing;
    return b;
end
$$;

-- Send the end or the abort message to the batch's own queue when its last member has ended, in the same transaction,
-- so exactly once. One transaction at a time decides, because open transactions do not see each other's endings. Nobody
-- waits: a transaction that cannot decide now leaves that to the next receive or sweep.
create or replace function penstock._end_batch_if_done(_batch_id bigint, _now bigint) returns void
language plpgsql as $$
declare
    b penstock.batch;
    q penstock.queue;
    _message jsonb;
begin
    if not pg_try_advisory_xact_lock(penstock._batch_key(_batch_id)) then
        perform penstock._defer_batch_check(_batch_id);
        return;
    elsif penstock._has_members(_batch_id) then
        -- The end of the other members checks again, or defers it: the lock is held until this transaction ends.
        return;
    end if;
    select * into b from penstock.batch where batch_id = _batch_id for update skip locked;
    if not found then
        perform penstock._defer_batch_check(_batch_id);
        return;
    elsif b.state not in ('running', 'cancelling') then
        return;
    end if;
    update penstock.batch set state = case b.state when 'running' then 'finished' else 'cancelled' end, ended_at = _now
    where batch_id = _batch_id;
    _message := case b.state when 'running' then b.end_message else b.abort_message end;
    if _message is not null then
        select * into q from penstock.queue where queue_id = b.queue_id;
        if found then
            perform penstock._send_stored(q, penstock._add_batch_header(b.name, _message));
        end if;
    end if;
end
$$;

create or replace function penstock._has_members(_batch_id bigint) returns boolean
language sql volatile as $$
    select exists (select 1 from penstock.batch_member where batch_id = _batch_id)
        or exists (select 1 from penstock.held where batch_id = _batch_id)
$$;

-- Leave a check for the next receive or sweep. One row serves all and is share-locked, so that its deletion sees what this
-- transaction did.
create or replace function penstock._defer_batch_check(_batch_id bigint) returns void
language plpgsql as $$
declare
    _queue_id integer := (select queue_id from penstock.batch where batch_id = _batch_id);
begin
    perform 1 from penstock.batch_check where batch_id = _batch_id limit 1 for share skip locked;
    if not found and _queue_id is not null then
        insert into penstock.batch_check (queue_id, batch_id) values (_queue_id, _batch_id);
    end if;
    perform penstock._wake_receivers(_queue_id);
end
$$;

-- Run the deferred checks of a queue's batches. Some may be deferred again.
create or replace function penstock._check_batches(_queue_id integer, _now bigint) returns void
language plpgsql as $$
declare
    _batch_id bigint;
begin
    for _batch_id in
        select distinct batch_id from penstock.batch_check where queue_id = _queue_id order by batch_id
    loop
        continue when not pg_try_advisory_xact_lock(penstock._batch_key(_batch_id));
        if not penstock._has_members(_batch_id) then
            perform 1 from penstock.batch where batch_id = _batch_id for update skip locked;
            -- A send to it is in progress.
            continue when not found and exists (select 1 from penstock.batch where batch_id = _batch_id);
        end if;
        delete from penstock.batch_check where check_id in (
            select check_id from penstock.batch_check where batch_id = _batch_id for update skip locked
        );
        perform penstock._end_batch_if_done(_batch_id, _now);
    end loop;
end
$$;

-- Cancel members that no group has received. Groups other than the primary keep what they have begun to process. The
-- lanes are locked first, so that no member is handed out meanwhile.
create or replace function penstock._cancel_members(
    q penstock.queue, b penstock.batch, _reason text, _now bigint
) returns void
language plpgsql as $$
declare
    h penstock.held;
    g penstock.group;
    t penstock.tracked;
    m penstock.log;
    _members bigint[];
    _is_primary boolean;
begin
    perform penstock._lock_lanes(q, null);
    -- One at a time: the batch ends, and sends its abort message, when no member is held any more.
    for h in
        select * from penstock.held where batch_id = b.batch_id and queue_id = q.queue_id order by held_id for update
    loop
        delete from penstock.held where held_id = h.held_id;
        perform penstock._end_held(q, h, 'batch_cancel', 'cancelled', _reason, _now);
    end loop;
    _members := array(select position from penstock.batch_member where batch_id = b.batch_id order by position);
    for g in select * from penstock.group where queue_id = q.queue_id and stream_mark is null order by name loop
        _is_primary := g.name is not distinct from q.primary_group;
        for m in
            select u.* from penstock.log as u join penstock.lane as n using (lane_id)
            where u.position = any (_members) and n.queue_id = q.queue_id and n.priority >= 0
                and not penstock._is_behind_cursor(
                    penstock._get_cursor(g.group_id, u.lane_id), u.tx, u.position, q.trimmed_position
                )
                and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.position = u.position)
            order by u.position
        loop
            insert into penstock.skip (group_id, position) values (g.group_id, m.position);
            perform penstock._end_message(
                q, g, penstock._log_row(m, (select priority from penstock.lane where lane_id = m.lane_id), null, null),
                'batch_cancel', 'cancelled', null, _reason, 0, null, _is_primary, _now
            );
        end loop;
        continue when not _is_primary;
        for t in
            delete from penstock.tracked
            where group_id = g.group_id and position = any (_members) and state in ('held', 'ready')
            returning *
        loop
            perform penstock._end_message(
                q, g, penstock._tracked_row(t), 'batch_cancel', 'cancelled', null, _reason, t.attempt, null, true, _now
            );
        end loop;
    end loop;
end
$$;

-- Abandon the batches of a queue that is emptied: cancel their members in other queues and send nothing for them any
-- more.
create or replace function penstock._abandon_batches(_queue_id integer, _name text, _now bigint) returns void
language plpgsql as $$
declare
    b penstock.batch;
    m penstock.queue;
begin
    for b in
        update penstock.batch as u set state = 'cancelling', end_message = null, abort_message = null
        where u.queue_id = _queue_id and u.state in ('open', 'running', 'cancelling')
            and exists (select 1 from penstock.batch_queue as o where o.batch_id = u.batch_id)
        returning u.*
    loop
        for m in select * from penstock._batch_queues(b) as u where u.queue_id <> _queue_id loop
            perform penstock._cancel_members(m, b, format('batch %s was flushed with queue %s', b.name, _name), _now);
        end loop;
    end loop;
end
$$;

-- Remove the members that batches of other queues have in a queue that is emptied. Returns those batches, which may
-- have ended by it.
create or replace function penstock._remove_members_of_queue(_queue_id integer) returns bigint[]
language plpgsql as $$
declare
    _visiting bigint[] := array(
        select batch_id from penstock.batch_queue where queue_id = _queue_id order by batch_id
    );
begin
    with gone as (
        delete from penstock.batch_member where batch_id = any (_visiting) and (
            exists (
                select 1 from penstock.log as l join penstock.lane as n using (lane_id)
                where l.position = batch_member.position and n.queue_id = _queue_id
            )
            -- A retry has a copy of its message, which may be gone from the log.
            or exists (
                select 1 from penstock.tracked as t join penstock.group as g using (group_id)
                where t.position = batch_member.position and g.queue_id = _queue_id
            )
        )
        returning batch_id
    )
    insert into penstock.batch_join (batch_id, n, cancelled)
    select one.batch_id, 0, count(*)
    from (
        select batch_id from gone
        union all
        select batch_id from penstock.held where queue_id = _queue_id and batch_id = any (_visiting)
    ) as one
    group by one.batch_id;
    delete from penstock.batch_queue where queue_id = _queue_id;
    return _visiting;
end
$$;

-- Delete the batches of a queue that is emptied.
create or replace function penstock._delete_batches(_queue_id integer) returns void
language sql as $$
    delete from penstock.batch_member where batch_id in (select batch_id from penstock.batch where queue_id = _queue_id);
    delete from penstock.batch_join where batch_id in (select batch_id from penstock.batch where queue_id = _queue_id);
    delete from penstock.batch_check where queue_id = _queue_id;
    delete from penstock.batch where queue_id = _queue_id
$$;
