-- ready -> leased for messages that no cursor reaches: retries, and messages that this transaction has sent itself.

-- Lease messages that no cursor reaches and that precede the unread messages of a priority: retries up to it, and
-- messages that this transaction itself has sent or promoted to a better one. Within a priority retries come first.
create or replace function penstock._receive_waiting(
    r penstock.receive_call, q penstock.queue, _priority integer, _room integer
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    _better integer;
    _taken integer;
begin
    for _better in
        select distinct n.priority from penstock.lane as n
        where n.queue_id = r.queue_id and n.priority >= 0 and n.priority < _priority
            and exists (select 1 from penstock.log as l where l.lane_id = n.lane_id and l.tx = r.own)
        order by n.priority
    loop
        return query select * from penstock._receive_retries(r, _better, _room);
        get diagnostics _taken = row_count;
        _room := _room - _taken;
        return query select * from penstock._receive_own(r, q, _better, _room);
        get diagnostics _taken = row_count;
        _room := _room - _taken;
    end loop;
    return query select * from penstock._receive_retries(r, _priority, _room);
end
$$;

-- Lease ready retries up to a priority. Retries that another receive has locked are skipped, and so are those that a
-- later receive has leased and released meanwhile: the tokens of a message only grow.
create or replace function penstock._receive_retries(r penstock.receive_call, _priority integer, _room integer)
returns setof penstock.delivery_row
language plpgsql as $$
declare
    t penstock.tracked;
begin
    for t in
        select * from penstock.tracked
        where group_id = r.group_id and state = 'ready' and priority <= _priority and coalesce(token, 0) < r.token
        order by priority, position
        limit _room
        for update skip locked
    loop
        return next penstock._lease_retry(r, t);
    end loop;
end
$$;

-- Lease a message that is tracked by itself.
create or replace function penstock._lease_retry(r penstock.receive_call, t penstock.tracked) returns penstock.delivery_row
language plpgsql as $$
declare
    _ends bigint := penstock._lease_end(r.now, r.lease_seconds, t.expires_at, t.deadline_at);
begin
    update penstock.tracked
    set state = 'leased', attempt = t.attempt + 1, until_at = _ends, token = r.token, consumer = r.consumer,
        leased_at = r.now
    where group_id = t.group_id and position = t.position;
    perform penstock._record_audit(
        r.queue_id, t.group_id, 'receive', 'leased', t.position, r.consumer, null, t.attempt + 1, r.token, penstock.now_us()
    );
    return row (
        t.position, t.created_at, t.id::text, t.content_type, t.headers, t.expires_at, t.deadline_at, t.address, t.key,
        penstock._batch_name(t), t.created_by, t.payload, t.priority, t.attempt + 1, _ends
    )::penstock.delivery_row;
end
$$;

-- The batch that a message was sent to. A redriven message is no longer a member, but was sent to it.
create or replace function penstock._batch_name(t penstock.tracked) returns text
language sql stable as $$
    select b.name from penstock.batch as b
    where b.batch_id = case
        when t.batch_id is not null then t.batch_id
        when exists (select 1 from penstock.checked_lane as c where c.lane_id = t.lane_id) then (
            select m.batch_id from penstock.log as m where m.position = t.position and m.lane_id = t.lane_id
        )
    end
$$;

-- Lease messages that this transaction itself has sent or promoted, up to a priority. No snapshot shows them yet, so no
-- cursor reaches them: they are leased one by one, and the cursor skips them later.
create or replace function penstock._receive_own(
    r penstock.receive_call, q penstock.queue, _priority integer, _room integer, _only bigint default null
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    one record;
begin
    for one in
        select l.position, n.lane_id, n.priority from penstock.lane as n join penstock.log as l using (lane_id)
        where n.queue_id = r.queue_id and n.priority >= 0 and n.priority <= _priority and l.tx = r.own
            and l.position > q.trimmed_position and (_only is null or l.position = _only)
            and penstock._expiry_event(q, l.expires_at, l.deadline_at, l.batch_id, r.now) is null
            and not exists (select 1 from penstock.skip as s where s.group_id = r.group_id and s.position = l.position)
        order by n.priority, l.position
        limit _room
    loop
        return next penstock._lease_ahead(r, one.lane_id, one.priority, one.position);
    end loop;
end
$$;

-- Lease one message ahead of the cursor: it is tracked by itself from now on, and the cursor skips it.
create or replace function penstock._lease_ahead(
    r penstock.receive_call, _lane_id integer, _priority integer, _position bigint
) returns penstock.delivery_row
language plpgsql as $$
declare
    m penstock.log;
    _ends bigint;
begin
    select * into m from penstock.log where position = _position and lane_id = _lane_id;
    _ends := penstock._lease_end(r.now, r.lease_seconds, m.expires_at, m.deadline_at);
    insert into penstock.skip (group_id, position) values (r.group_id, _position);
    perform penstock._track_message(
        r.group_id, penstock._log_row(m, _priority, r.token, r.consumer), 'leased', 1, _ends, r.now
    );
    perform penstock._record_audit(
        r.queue_id, r.group_id, 'receive', 'leased', _position, r.consumer, null, 1, r.token, penstock.now_us()
    );
    return row (
        m.position, m.created_at, m.id::text, m.content_type, m.headers, m.expires_at, m.deadline_at, m.address, m.key,
        (select b.name from penstock.batch as b where b.batch_id = m.batch_id), m.created_by, m.payload, _priority, 1,
        _ends
    )::penstock.delivery_row;
end
$$;
