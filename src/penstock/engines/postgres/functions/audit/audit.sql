-- The audit trail: writing entries, and reading those of a message.

-- The only writer of audit entries: one event of one message, or of all from _position to _last, or of the given positions
-- among those. Use the current time, not the start of the call: the call may have waited, and the entry must not predate
-- what it saw.
create or replace function penstock._record_audit(
    _queue_id integer, _group_id integer, _event text, _state text, _position bigint, _by text, _reason text,
    _attempt integer, _token bigint, _now bigint, _code text default null, _last bigint default null,
    _n integer default 1, _positions int8multirange default null
) returns void
language plpgsql as $$
begin
    insert into penstock.audit (
        entry, queue_id, group_id, tx, at, token, first, last, n, attempt, event, state, by, reason, code, positions
    ) values (
        nextval('penstock.entry'), _queue_id, _group_id, pg_current_xact_id(), greatest(_now, penstock.now_us()), _token,
        _position, coalesce(_last, _position), _n, _attempt, _event, _state, _by, _reason, _code,
        case when _last - _position + 1 <> _n then _positions end
    );
end
$$;

-- The reason recorded when time or an operator ended a message and none was given.
create or replace function penstock._default_reason(_event text) returns text
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

-- The audit entries of the message at a position of a lane, in order.
create or replace function penstock._audit_entries(_queue_id integer, _lane_id integer, _position bigint)
returns table (
    entry bigint, at bigint, event text, state text, by text, group_id integer, reason text, attempt integer,
    token bigint
)
language sql stable rows 10 as $$
    -- Sets of positions are found by their last one, not far from the message; those that are wide by themselves.
    select s.entry, s.at, s.event, s.state, s.by, s.group_id, s.reason, s.attempt, s.token
    from penstock.audit as s
    where s.queue_id = _queue_id and s.last between _position and _position + 16383 and s.first <= _position
        and s.last - s.first < 16384 and (s.positions is null or s.positions @> _position)
    union all
    select s.entry, s.at, s.event, s.state, s.by, s.group_id, s.reason, s.attempt, s.token
    from penstock.audit as s
    where s.queue_id = _queue_id and s.last >= _position and s.first <= _position and s.last - s.first >= 16384
        and (s.positions is null or s.positions @> _position)
    union all
    select c.entry, c.at, 'receive', 'leased', c.consumer, c.group_id, null, 1, c.token
    from penstock.cursor as c
    where c.lane_id = _lane_id and c.last between _position and _position + 16383 and c.first <= _position
        and c.last - c.first < 16384 and c.n > 0 and (c.positions is null or c.positions @> _position)
    union all
    select c.entry, c.at, 'receive', 'leased', c.consumer, c.group_id, null, 1, c.token
    from penstock.cursor as c
    where c.lane_id = _lane_id and c.last >= _position and c.first <= _position and c.last - c.first >= 16384 and c.n > 0
        and (c.positions is null or c.positions @> _position)
    order by entry
$$;

-- The latest audit entry of a message in a group.
create or replace function penstock._last_entry(
    _queue_id integer, _group_id integer, _lane_id integer, _position bigint,
    out state text, out reason text, out attempt integer, out at bigint
)
language plpgsql stable as $$
begin
    -- Not in SQL: this keeps its plan, and a list calls it for every message.
    select e.state, e.reason, e.attempt, e.at into state, reason, attempt, at
    from penstock._audit_entries(_queue_id, _lane_id, _position) as e
    where e.group_id is null or e.group_id = _group_id
    order by e.entry desc
    limit 1;
end
$$;

-- The audit trail of one message over all groups, in order; times are microseconds.
create or replace function penstock.list_audit(queue text, id uuid)
returns table (
    at bigint, event text, state text, by text, group_name text, reason text, attempt integer
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(list_audit.queue);
    place record;
    msg penstock.message_row;
begin
    place := penstock._get_place(q, list_audit.id);
    if place.position is null then
        return query
        select h.created_at, 'send', 'held', h.created_by, null::text, null::text, 0
        from penstock.held as h where h.held_id = place.held_id;
        return;
    end if;
    msg := penstock._find_message(q, place.position);
    return query
    select msg.created_at, 'send',
        case when msg.available_at is null then 'ready' else 'held' end, msg.created_by, null::text, null::text, 0;
    return query
    select e.at, e.event, e.state, e.by, g.name, e.reason, e.attempt
    from penstock._audit_entries(q.queue_id, msg.lane_id, msg.position) as e
    left join penstock.group as g using (group_id)
    order by e.entry;
end
$$;
