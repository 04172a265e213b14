-- live -> an outcome: everything that follows when a message ends in a group.

-- Free the addresses of messages that ended in the primary group, and end batches with their last member.
create or replace function penstock._free_addresses_and_batches(
    _queue_id integer, _positions int8multirange, _outcome text, _reason text, _now bigint
) returns void
language plpgsql as $$
declare
    _batch_id bigint;
    _members integer;
begin
    update penstock.address set outcome = _outcome, reason = _reason, ended_at = _now
    where queue_id = _queue_id and position between lower(_positions) and upper(_positions) - 1
        and outcome is null and _positions @> position;
    if found then
        perform penstock._wake_receivers(_queue_id);
    end if;
    for _batch_id, _members in
        with gone as (
            delete from penstock.batch_member
            where position between lower(_positions) and upper(_positions) - 1 and _positions @> position
            returning batch_id
        )
        select batch_id, count(*) from gone group by batch_id order by batch_id
    loop
        if _outcome = 'cancelled' then
            insert into penstock.batch_join (batch_id, n, cancelled) values (_batch_id, 0, _members);
        end if;
        perform penstock._end_batch_if_done(_batch_id, _now);
    end loop;
end
$$;

-- End a message in one group. A group that only skipped it gets no dead letter.
create or replace function penstock._end_message(
    q penstock.queue, g penstock.group, msg penstock.message_row, _event text, _state text, _by text, _reason text,
    _attempt integer, _token bigint, _letter boolean, _now bigint, _code text default null
) returns void
language plpgsql as $$
declare
    _why text := coalesce(_reason, penstock._default_reason(_event));
begin
    perform penstock._record_audit(q.queue_id, g.group_id, _event, _state, msg.position, _by, _why, _attempt, _token, _now, _code);
    perform penstock._store_outcome(q, g, msg, _state, _why, _attempt, _letter, _now);
end
$$;

-- Store the dead letter of a message that ended; in the primary group free its address and finish its batch.
create or replace function penstock._store_outcome(
    q penstock.queue, g penstock.group, msg penstock.message_row, _state text, _reason text, _attempt integer,
    _letter boolean, _now bigint
) returns void
language plpgsql as $$
begin
    if _letter and _state <> 'succeeded' then
        insert into penstock.dead_letter (
            group_id, position, queue_id, lane_id, priority, outcome, reason, attempts, died_at, created_at, id, content_type,
            headers, expires_at, deadline_at, address, key, batch_id, created_by, available_at, payload
        ) values (
            g.group_id, msg.position, q.queue_id, msg.lane_id, msg.priority, _state, _reason, _attempt, _now, msg.created_at, msg.id,
            msg.content_type, msg.headers, msg.expires_at, msg.deadline_at, msg.address, msg.key, msg.batch_id, msg.created_by,
            msg.available_at, msg.payload
        );
        perform penstock._notify_dead(q, g, msg, _state, _reason);
    end if;
    if g.name is not distinct from q.primary_group then
        perform penstock._free_addresses_and_batches(q.queue_id, int8multirange(int8range(msg.position, msg.position + 1)), _state, _reason, _now);
    end if;
end
$$;
