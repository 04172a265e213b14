-- live -> an outcome: everything that follows when a message ends in a group, and what is written down about it.

-- Write down that what is left of a lease has succeeded; in the primary group addresses and batches follow.
create or replace function penstock._succeed(
    _queue_id integer, _group_id integer, _primary_group_id integer, e penstock.lease, _now bigint
) returns void
language plpgsql as $$
begin
    insert into penstock.step (
        entry, queue_id, group_id, tx, at, token, first, last, n, attempt, event, state, by, positions
    ) values (
        nextval('penstock.entry'), _queue_id, _group_id, pg_current_xact_id(), _now, e.token, e.first, e.last, e.n, 1,
        'ack', 'succeeded', e.consumer,
        case when e.last - e.first + 1 <> e.n then e.positions end
    );
    if _group_id is not distinct from _primary_group_id and (
        exists (select 1 from penstock.member where seq between e.first and e.last)
        or exists (
            select 1 from penstock.address
            where queue_id = _queue_id and seq between e.first and e.last and outcome is null
        )
    ) then
        perform penstock._free(_queue_id, e.positions, 'succeeded', null, _now);
    end if;
end
$$;

-- In the primary group messages have ended: their addresses are free, and with the last member a batch ends.
create or replace function penstock._free(
    _queue_id integer, _positions int8multirange, _outcome text, _reason text, _now bigint
) returns void
language plpgsql as $$
declare
    _batch_id bigint;
begin
    update penstock.address set outcome = _outcome, reason = _reason, ended_at = _now
    where queue_id = _queue_id and seq between lower(_positions) and upper(_positions) - 1
        and outcome is null and _positions @> seq;
    if found then
        perform penstock._wake(_queue_id);
    end if;
    for _batch_id in
        with gone as (
            delete from penstock.member
            where seq between lower(_positions) and upper(_positions) - 1 and _positions @> seq
            returning batch_id
        )
        select distinct batch_id from gone order by batch_id
    loop
        perform penstock._end_batch_if_done(_batch_id, _now);
    end loop;
end
$$;

-- Write down one step of one message. With the time of now, not that of the beginning of the call: it may have waited since,
-- and what it has seen happened before.
create or replace function penstock._record(
    _queue_id integer, _group_id integer, _event text, _state text, _seq bigint, _by text, _reason text,
    _attempt integer, _token bigint, _now bigint
) returns void
language sql as $$
    insert into penstock.step (
        entry, queue_id, group_id, tx, at, token, first, last, n, attempt, event, state, by, reason
    ) values (
        nextval('penstock.entry'), _queue_id, _group_id, pg_current_xact_id(), greatest(_now, penstock.now_us()), _token,
        _seq, _seq, 1, _attempt, _event, _state, _by, _reason
    )
$$;

-- What is written down when time or an operator ended a message, and nobody gave a reason.
create or replace function penstock._reason(_event text) returns text
language sql immutable as $$
    select case _event
        when 'expire' then 'expires_at passed'
        when 'deadline' then 'deadline_at passed'
        when 'batch_cancel' then 'its batch was cancelled'
        when 'lease_end' then 'the lease ended'
        when 'release' then 'the lease ended before its turn came'
        when 'remove' then 'it was removed'
    end
$$;

-- A message ends in one group. A group that only passed by leaves no dead letter.
create or replace function penstock._end(
    q penstock.queue, g penstock.reader, fl penstock.flight, _event text, _state text, _by text, _reason text,
    _attempt integer, _token bigint, _letter boolean, _now bigint
) returns void
language plpgsql as $$
declare
    _why text := coalesce(_reason, penstock._reason(_event));
begin
    perform penstock._record(q.queue_id, g.group_id, _event, _state, fl.seq, _by, _why, _attempt, _token, _now);
    perform penstock._account(q, g, fl, _state, _why, _attempt, _letter, _now);
end
$$;

-- What follows from an ending: a dead letter, and in the primary group free addresses and batches that end.
create or replace function penstock._account(
    q penstock.queue, g penstock.reader, fl penstock.flight, _state text, _reason text, _attempt integer,
    _letter boolean, _now bigint
) returns void
language plpgsql as $$
begin
    if _letter and _state <> 'succeeded' then
        insert into penstock.dead_letter (
            group_id, seq, queue_id, lane_id, priority, outcome, reason, attempts, died_at, created_at, id, content_type,
            headers, expires_at, deadline_at, address, key, batch_id, created_by, available_at, payload
        ) values (
            g.group_id, fl.seq, q.queue_id, fl.lane_id, fl.priority, _state, _reason, _attempt, _now, fl.created_at, fl.id,
            fl.content_type, fl.headers, fl.expires_at, fl.deadline_at, fl.address, fl.key, fl.batch_id, fl.created_by,
            fl.available_at, fl.payload
        );
        perform penstock._mourn(q, g, fl, _state, _reason);
    end if;
    if g.name is not distinct from q.primary_group then
        perform penstock._free(q.queue_id, int8multirange(int8range(fl.seq, fl.seq + 1)), _state, _reason, _now);
    end if;
end
$$;

-- The dead signal: a warning in the server's log, and a notification for whoever listens.
create or replace function penstock._mourn(
    q penstock.queue, g penstock.reader, fl penstock.flight, _state text, _reason text
) returns void
language plpgsql as $$
begin
    raise warning using errcode = 'PN900', message = format(
        'dead letter in queue %s, group %s, position %s, %s%s', penstock._shown(q.name), penstock._shown(g.name), fl.seq,
        _state, ': ' || penstock._shown(_reason)
    );
    perform penstock._notify('penstock_dead', json_build_object(
        'queue', q.name, 'group', g.name, 'id', coalesce(fl.id, penstock.made_id(fl.created_at, fl.seq)),
        'outcome', _state, 'reason', left(_reason, 1000)
    )::text);
    if q.announces and g.name is not distinct from q.primary_group then
        perform penstock._door_mourn(q.queue_id, fl.seq, _state);
    end if;
end
$$;
