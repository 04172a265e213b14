-- Deleting queues. An open transaction may have seen the queue and may send to it, receive from it or create a group of
-- it until it ends. So a deletion only empties the queue and deletes its row: from then on the name is free. The sweep
-- removes the rest when all transactions have ended that were open then; messages that they sent, and that nobody has
-- received since, are sent to the queue of that name, which is created for them, as every send does.

-- Delete the queue with its messages, groups, batches and policy. Returns the number of messages.
create or replace function penstock.delete_queue(queue text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    q penstock.queue := penstock._get_queue(delete_queue.queue);
    _count bigint;
begin
    perform penstock._check_unused(q);
    -- In the order in which the sweep locks them.
    _count := penstock._flush_remaining(q.name);
    perform pg_advisory_xact_lock(penstock._groups_key(q.queue_id));
    _count := _count + penstock.flush(q.name);
    insert into penstock.deleted_queue (queue_id, name) values (q.queue_id, q.name);
    delete from penstock.queue where queue_id = q.queue_id;
    perform penstock._wake_receivers(q.queue_id);
    return _count;
end
$$;

-- Refuse to delete a queue that somebody would create again, or that a compatibility schema uses.
create or replace function penstock._check_unused(q penstock.queue) returns void
language plpgsql as $$
declare
    _who text[];
    _kind text;
    _advice text;
begin
    select array_agg(s.name order by s.name) into _who from penstock.schedule as s where s.queue = q.name;
    _kind := 'schedule';
    _advice := 'would make it anew: remove it first';
    if _who is null then
        select array_agg(c.name order by c.name) into _who
        from penstock.consumer as c join penstock.group as g using (group_id) where g.queue_id = q.queue_id;
        _kind := 'consumer';
        _advice := 'is registered: stop it first';
    end if;
    if _who is null then
        select array_agg(d.schema_name order by d.schema_name) into _who from penstock.compat_schema as d where d.queue_id = q.queue_id;
        _kind := 'schema';
        _advice := 'stands for it: drop that first (drop_queue_schema, drop_message_schema)';
    end if;
    if _who is not null then
        raise exception using errcode = 'PN200', message = format(
            'queue %s was not deleted: %s %s%s %s', penstock._quote_value(q.name), _kind,
            (select string_agg(penstock._quote_value(one), ', ') from unnest(_who[1:3]) as one),
            case when cardinality(_who) > 3 then format(' and %s more', cardinality(_who) - 3) else '' end, _advice
        );
    end if;
end
$$;

-- Finish deletions: for new ones record which transactions may have seen the queue; for the others, once these have
-- ended, resend what they sent and remove the rest.
create or replace function penstock._sweep_deleted() returns void
language plpgsql as $$
declare
    d penstock.deleted_queue;
    q penstock.queue;
begin
    for d in select * from penstock.deleted_queue order by queue_id for update skip locked loop
        if d.upto is null then
            update penstock.deleted_queue set upto = pg_current_xact_id() where queue_id = d.queue_id;
            continue;
        end if;
        q.queue_id := d.queue_id;
        q.ordered := false;
        -- A receive that has no transaction number yet holds the lock of its lane.
        if d.upto < pg_snapshot_xmin(pg_current_snapshot()) and penstock._try_lock_lanes(q, null) then
            perform penstock._resend_remaining(d);
            perform penstock._remove_remaining(d.queue_id, d.name);
            delete from penstock.deleted_queue where queue_id = d.queue_id;
        end if;
    end loop;
end
$$;

-- Send messages that were sent to a queue while it was deleted to the queue of that name. They keep their ids; batches
-- and addresses went with the queue, and so did messages that were received before: they must not be delivered a second
-- time as a first attempt.
create or replace function penstock._resend_remaining(d penstock.deleted_queue) returns void
language plpgsql as $$
declare
    _now bigint := penstock.now_us();
    _received int8multirange := penstock._received_positions(d.queue_id);
    m record;
begin
    for m in
        select l.position as place, n.priority, coalesce(l.id, penstock.made_id(l.created_at, l.position)) as id, l.content_type,
            l.headers, l.expires_at, l.deadline_at, l.key, l.created_by, null::bigint as available_at, l.payload
        from penstock.lane as n join penstock.log as l using (lane_id)
        where n.queue_id = d.queue_id and n.priority >= 0 and not _received @> l.position
        union all
        select h.held_id, h.priority, h.id, h.content_type, h.headers, h.expires_at, h.deadline_at, h.key, h.created_by,
            h.available_at, h.payload
        from penstock.held as h where h.queue_id = d.queue_id
        order by place
    loop
        continue when m.expires_at <= _now;
        perform penstock._send_checked(
            d.name, array[m.payload], array[m.content_type], jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
                'priority', m.priority, 'id', m.id, 'headers', m.headers, 'deadline_at', m.deadline_at, 'key', m.key,
                'created_by', m.created_by, 'ttl_seconds', (m.expires_at - _now) / 1000000.0,
                'delay_seconds', (m.available_at - _now) / 1000000.0
            ))), true, pg_current_xact_id()
        );
    end loop;
end
$$;

-- Remove messages sent to deleted queues of a name that were not resent yet: they must not appear after a later flush.
-- Waits for a sweep that is resending them. Returns the number of messages.
create or replace function penstock._flush_remaining(_name text) returns bigint
language plpgsql as $$
declare
    _queue_id integer;
    _received int8multirange;
    _count bigint := 0;
begin
    for _queue_id in
        select d.queue_id from penstock.deleted_queue as d where d.name = _name order by d.queue_id for update
    loop
        _received := penstock._received_positions(_queue_id);
        with messages as (
            delete from penstock.log where lane_id in (select n.lane_id from penstock.lane as n where n.queue_id = _queue_id)
            returning position
        ),
        held as (delete from penstock.held where queue_id = _queue_id returning 1)
        select _count + (select count(*) from messages where not _received @> position) + (select count(*) from held) into _count;
    end loop;
    return _count;
end
$$;

-- The positions of a queue that any of its groups has received, by moving a cursor or one by one.
create or replace function penstock._received_positions(_queue_id integer) returns int8multirange
language sql stable as $$
    with left_ as (
        select min(l.position) as first from penstock.lane as n join penstock.log as l using (lane_id)
        where n.queue_id = _queue_id
    ),
    taken as (
        select c.first, c.last, c.positions from penstock.lane as n join penstock.cursor as c using (lane_id)
        where n.queue_id = _queue_id and c.n > 0 and c.last >= (select first from left_)
        union all
        select s.first, s.last, s.positions from penstock.audit as s
        where s.queue_id = _queue_id and s.event = 'receive' and s.last >= (select first from left_)
    )
    select coalesce(range_agg(penstock._expand_positions(t.first, t.last, t.positions)), '{}') from taken as t
$$;

-- Remove all rows of a queue, its lanes, groups and batches. Batches of other queues go on without members here, and
-- what batches of this queue hold elsewhere is cancelled, as by a flush.
create or replace function penstock._remove_remaining(_queue_id integer, _name text) returns void
language plpgsql as $$
declare
    _now bigint := penstock.now_us();
    _visiting bigint[];
    _lanes integer[] := array(select lane_id from penstock.lane where queue_id = _queue_id);
begin
    perform penstock._abandon_batches(_queue_id, _name, _now);
    _visiting := penstock._remove_members_of_queue(_queue_id);
    delete from penstock.log where lane_id = any (_lanes);
    perform penstock._delete_groups(array(select group_id from penstock.group where queue_id = _queue_id));
    perform penstock._delete_batches(_queue_id);
    delete from penstock.cursor where lane_id = any (_lanes);
    delete from penstock.checked_lane where lane_id = any (_lanes);
    delete from penstock.held where queue_id = _queue_id;
    delete from penstock.identity where queue_id = _queue_id;
    delete from penstock.address where queue_id = _queue_id;
    delete from penstock.audit where queue_id = _queue_id;
    delete from penstock.finished where queue_id = _queue_id;
    delete from penstock.removal where queue_id = _queue_id;
    delete from penstock.removed where queue_id = _queue_id;
    delete from penstock.deletion where queue_id = _queue_id;
    delete from penstock.staged where queue_id = _queue_id;
    delete from penstock.staged_part where queue_id = _queue_id;
    delete from penstock.lane where queue_id = _queue_id;
    perform penstock._end_batch_if_done(one, _now) from unnest(_visiting) as one;
end
$$;
