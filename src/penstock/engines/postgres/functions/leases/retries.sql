-- ready -> leased for what no cursor reaches: retries, and messages that this transaction has sent itself.

-- Lease messages that no cursor reaches and that precede the unread messages of a priority: retries up to it, and
-- messages that this transaction itself has sent or promoted to a better one. Within a priority retries come first.
create or replace function penstock._receive_waiting(
    q penstock.queue, g penstock.group, _consumer text, _room integer, _lease_seconds double precision, _token bigint,
    _now bigint, _priority integer, _own xid8
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    _better integer;
    _taken integer;
begin
    for _better in
        select distinct n.priority from penstock.lane as n
        where n.queue_id = q.queue_id and n.priority >= 0 and n.priority < _priority
            and exists (select 1 from penstock.log as l where l.lane_id = n.lane_id and l.tx = _own)
        order by n.priority
    loop
        return query
        select * from penstock._receive_retries(q, g, _consumer, _room, _lease_seconds, _token, _now, _better);
        get diagnostics _taken = row_count;
        _room := _room - _taken;
        return query
        select * from penstock._receive_own(q, g, _consumer, _room, _lease_seconds, _token, _now, _better, _own);
        get diagnostics _taken = row_count;
        _room := _room - _taken;
    end loop;
    return query
    select * from penstock._receive_retries(q, g, _consumer, _room, _lease_seconds, _token, _now, _priority);
end
$$;

-- Lease ready retries up to a priority. Retries that another receive has locked are skipped, and so are those that a
-- later receive has had and given back meanwhile: the tokens of a message only grow.
create or replace function penstock._receive_retries(
    q penstock.queue, g penstock.group, _consumer text, _room integer, _lease_seconds double precision, _token bigint,
    _now bigint, _priority integer
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    t penstock.tracked;
begin
    for t in
        select * from penstock.tracked
        where group_id = g.group_id and state = 'ready' and priority <= _priority and coalesce(token, 0) < _token
        order by priority, position
        limit _room
        for update skip locked
    loop
        return next penstock._lease_retry(q, t, _consumer, _lease_seconds, _token, _now);
    end loop;
end
$$;

create or replace function penstock._lease_retry(
    q penstock.queue, t penstock.tracked, _consumer text, _lease_seconds double precision, _token bigint, _now bigint
) returns penstock.delivery_row
language plpgsql as $$
declare
    _ends bigint := penstock._lease_end(_now, _lease_seconds, t.expires_at, t.deadline_at);
begin
    update penstock.tracked
    set state = 'leased', attempt = t.attempt + 1, until_at = _ends, token = _token, consumer = _consumer,
        leased_at = _now
    where group_id = t.group_id and position = t.position;
    perform penstock._record_audit(
        q.queue_id, t.group_id, 'receive', 'leased', t.position, _consumer, null, t.attempt + 1, _token, penstock.now_us()
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
        when exists (select 1 from penstock.checked_lane as r where r.lane_id = t.lane_id) then (
            select m.batch_id from penstock.log as m where m.position = t.position and m.lane_id = t.lane_id
        )
    end
$$;

-- Lease messages that this transaction itself has sent or promoted, up to a priority. No snapshot shows them yet, so no
-- cursor reaches them: they are leased one by one, and the cursor skips them later.
create or replace function penstock._receive_own(
    q penstock.queue, g penstock.group, _consumer text, _room integer, _lease_seconds double precision, _token bigint,
    _now bigint, _priority integer, _own xid8, _only bigint default null
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    one record;
begin
    for one in
        select l.position, n.lane_id, n.priority from penstock.lane as n join penstock.log as l using (lane_id)
        where n.queue_id = q.queue_id and n.priority >= 0 and n.priority <= _priority and l.tx = _own
            and l.position > q.trimmed_position and (_only is null or l.position = _only)
            and penstock._expiry_event(q, l.expires_at, l.deadline_at, l.batch_id, _now) is null
            and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.position = l.position)
        order by n.priority, l.position
        limit _room
    loop
        return next penstock._lease_ahead(
            q, g, one.lane_id, one.priority, one.position, _consumer, _lease_seconds, _token, _now
        );
    end loop;
end
$$;

-- Lease one message ahead of the cursor: it is tracked by itself from now on, and the cursor skips it.
create or replace function penstock._lease_ahead(
    q penstock.queue, g penstock.group, _lane_id integer, _priority integer, _position bigint, _consumer text,
    _lease_seconds double precision, _token bigint, _now bigint
) returns penstock.delivery_row
language plpgsql as $$
declare
    m penstock.log;
    _ends bigint;
begin
    select * into m from penstock.log where position = _position and lane_id = _lane_id;
    _ends := penstock._lease_end(_now, _lease_seconds, m.expires_at, m.deadline_at);
    insert into penstock.skip (group_id, position) values (g.group_id, _position);
    perform penstock._track_message(
        g.group_id, penstock._log_row(m, _priority, _token, _consumer), 'leased', 1, _ends, _now
    );
    perform penstock._record_audit(
        q.queue_id, g.group_id, 'receive', 'leased', _position, _consumer, null, 1, _token, penstock.now_us()
    );
    return row (
        m.position, m.created_at, m.id::text, m.content_type, m.headers, m.expires_at, m.deadline_at, m.address, m.key,
        (select b.name from penstock.batch as b where b.batch_id = m.batch_id), m.created_by, m.payload, _priority, 1,
        _ends
    )::penstock.delivery_row;
end
$$;
