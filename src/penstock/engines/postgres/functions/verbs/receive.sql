-- Receiving, settling and reading for SQL clients: one message at a time, times as timestamptz, every value checked.

-- ready -> leased for up to "limit" messages. The token is the right to settle them; batch is also that of an end or
-- abort message.
create or replace function penstock.receive(
    queue text, "group" text default null, consumer text default null, "limit" integer default 1,
    lease_seconds double precision default null
) returns table (
    id uuid, token bigint, "position" bigint, payload bytea, content_type text, headers jsonb, priority integer,
    attempt integer, created_at timestamptz, created_by text, expires_at timestamptz, deadline_at timestamptz,
    address text, key text, batch text, lease_ends_at timestamptz, group_name text
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    _name text;
begin
    perform penstock._check_integer('limit', receive."limit", 1, 1000000),
        penstock._check_name('queue', receive.queue), penstock._check_optional('group', receive."group"),
        penstock._check_seconds('lease_seconds', receive.lease_seconds);
    _name := penstock._check_name('consumer', coalesce(receive.consumer, penstock._session_name()));
    -- The row with the token comes last, and all others need it: they are kept in the meantime as rows, which may go to
    -- disk. In an array they could have no more than 1 GB.
    return query
    with taken as materialized (
        select * from penstock.receive_messages(receive.queue, receive."group", _name, receive."limit", receive.lease_seconds)
    )
    select coalesce(t.id::uuid, penstock.made_id(t.created_at, t.position)), last.created_at, t.position, t.payload,
        coalesce(t.content_type, 'application/octet-stream'), penstock.headers_jsonb(t.headers), t.priority, t.attempt,
        penstock.to_time(t.created_at), coalesce(t.created_by, 'system'), penstock.to_time(t.expires_at),
        penstock.to_time(t.deadline_at), t.address, t.key,
        coalesce(t.batch, penstock.headers_jsonb(t.headers) ->> 'penstock-batch'), penstock.to_time(t.lease_ends_at), last.content_type
    from taken as t
    cross join (select created_at, content_type from taken where position is null) as last
    where t.position is not null;
end
$$;

-- leased -> succeeded. Returns the state.
create or replace function penstock.ack(
    queue text, id uuid, token bigint, "group" text default null, reason text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._settle_by_id(queue, id, token, "group", 'ack', reason, null);
end
$$;

-- leased -> held for the backoff or for delay_seconds, then ready; failed when no retries are left. The code identifies
-- the error for programs.
create or replace function penstock.nak(
    queue text, id uuid, token bigint, reason text default null, delay_seconds double precision default null,
    "group" text default null, code text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._settle_by_id(queue, id, token, "group", 'nak', reason, delay_seconds, code);
end
$$;

-- leased -> rejected.
create or replace function penstock.reject(
    queue text, id uuid, token bigint, reason text default null, "group" text default null, code text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._settle_by_id(queue, id, token, "group", 'reject', reason, null, code);
end
$$;

-- leased -> held for delay_seconds, with attempts starting again.
create or replace function penstock.reschedule(
    queue text, id uuid, token bigint, delay_seconds double precision default 3600, reason text default null,
    "group" text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._settle_by_id(queue, id, token, "group", 'reschedule', reason, coalesce(delay_seconds, 3600));
end
$$;

create or replace function penstock._settle_by_id(
    _queue text, _id uuid, _token bigint, _group text, _event text, _reason text, _delay double precision,
    _code text default null
) returns text
language plpgsql as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    _position bigint := penstock._locate_leased(q, _id, _token);
    _states text[];
begin
    _states := penstock.settle(
        _queue, coalesce(_group, penstock._default_group(q)), array[_event], array[_token], array[_position], array[_reason],
        array[penstock._check_delay(_delay)], array[penstock._check_optional('code', _code)]
    );
    if _states[1] is null then
        perform penstock._raise_lease_lost(_id);
    elsif _states[1] = 'out_of_order' then
        raise exception using errcode = 'PN207',
            message = format('message %s comes after another one of its lease that is still in flight', _id),
            hint = 'The queue is ordered: settle that one first. Nothing was changed.';
    end if;
    return _states[1];
end
$$;

-- The position of a message that the caller names by its id and the token of its lease; null if there is none.
create or replace function penstock._locate_leased(q penstock.queue, _id uuid, _token bigint) returns bigint
language plpgsql stable as $$
begin
    if _id is null or _token is null then
        raise exception using errcode = 'PN100', message = case when _id is null then 'id is null' else 'token is null' end,
            hint = 'Say which message, by the id and the token that receive has returned.';
    end if;
    return (penstock._locate_message(q, _id)).position;
end
$$;

create or replace function penstock._raise_lease_lost(_id uuid) returns void
language plpgsql as $$
begin
    raise exception using errcode = 'PN201', message = format('the lease on message %s is lost', _id),
        hint = 'It has ended, or the token is of another receive. Nothing was changed.';
end
$$;

-- Extend a lease to at least that many seconds from now. Returns the new end.
create or replace function penstock.extend(
    queue text, id uuid, token bigint, seconds double precision, "group" text default null
) returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(queue);
    _ends bigint[];
    _position bigint := penstock._locate_leased(q, id, token);
begin
    if seconds is null then
        raise exception using errcode = 'PN100', message = 'seconds is null', hint = 'Say how long from now.';
    end if;
    _ends := penstock.extend_each(
        queue, coalesce("group", penstock._default_group(q)), array[token], array[_position],
        penstock._check_seconds('seconds', seconds)
    );
    if _ends[1] is null then
        perform penstock._raise_lease_lost(id);
    end if;
    return penstock.to_time(_ends[1]);
end
$$;

-- The audit trail of a message over all groups, in order.
create or replace function penstock.audit(queue text, id uuid)
returns table (at timestamptz, event text, state text, by text, group_name text, reason text, attempt integer)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select penstock.to_time(t.at), t.event, t.state, coalesce(t.by, 'system'), t.group_name, t.reason, t.attempt
    from penstock.list_audit(audit.queue, audit.id) as t
$$;

-- What would be received next, without receiving it.
create or replace function penstock.peek(queue text, "limit" integer default 10, "group" text default null)
returns table (
    id uuid, "position" bigint, payload bytea, content_type text, headers jsonb, priority integer,
    created_at timestamptz, created_by text, expires_at timestamptz, deadline_at timestamptz, address text, key text,
    batch text
)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(m.message_id::uuid, penstock.made_id(m.created_at, m.position)), m.position, m.payload, coalesce(m.content_type, 'application/octet-stream'),
        penstock.headers_jsonb(m.headers), m.priority, penstock.to_time(m.created_at), coalesce(m.created_by, 'system'),
        penstock.to_time(m.expires_at), penstock.to_time(m.deadline_at), m.address, m.key,
        coalesce(m.batch, penstock.headers_jsonb(m.headers) ->> 'penstock-batch')
    from penstock.queue as q
    cross join lateral penstock.next_messages(
        q.name, coalesce(peek."group", penstock._default_group(q)), peek."limit"
    ) as m
    where q.name = peek.queue
$$;

-- Make receives return nothing until resume; sends and settlements go on.
create or replace function penstock.pause(queue text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select penstock.declare(queue, '{"paused": true}')
$$;

-- Make receives return messages again.
create or replace function penstock.resume(queue text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select penstock.declare(queue, '{"paused": false}')
$$;
