-- The verbs for people who write SQL: one message at a time, JSON in, times as times, and every value checked. Programs
-- that move thousands call append, put, take and settle.

-- Send a JSON value: its id. The options mean what they mean everywhere; null is what the policy of the queue says.
create or replace function penstock.send(
    queue text, payload jsonb, priority integer default 0, delay_seconds double precision default null,
    ttl_seconds double precision default null, deadline_at timestamptz default null, address text default null,
    key text default null, headers jsonb default null, id uuid default null, created_by text default 'system',
    batch text default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._send_one(
        queue, convert_to(payload::text, 'UTF8'), 'application/json',
        penstock._options(priority, delay_seconds, ttl_seconds, deadline_at, address, key, headers, id, created_by, batch)
    );
end
$$;

-- Send bytes.
create or replace function penstock.send_bytes(
    queue text, payload bytea, content_type text default null, priority integer default 0,
    delay_seconds double precision default null, ttl_seconds double precision default null,
    deadline_at timestamptz default null, address text default null, key text default null, headers jsonb default null,
    id uuid default null, created_by text default 'system', batch text default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._send_one(
        queue, payload, penstock._check_optional('content_type', content_type),
        penstock._options(priority, delay_seconds, ttl_seconds, deadline_at, address, key, headers, id, created_by, batch)
    );
end
$$;

-- Send many JSON values at once: their ids, in order.
create or replace function penstock.send_many(queue text, payloads jsonb[]) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock._check_payload(payloads is null or array_position(payloads, null) is not null);
    return query
    select sent::uuid
    from unnest(penstock.put(
        queue, array(select convert_to(one::text, 'UTF8') from unnest(payloads) as one),
        array_fill('application/json'::text, array[cardinality(payloads)]), null
    )) as sent;
end
$$;

create or replace function penstock._send_one(_queue text, _payload bytea, _content_type text, _options jsonb)
returns uuid
language plpgsql as $$
begin
    perform penstock._check_payload(_payload is null);
    return (penstock.put(_queue, array[_payload], array[_content_type], jsonb_build_array(_options)))[1]::uuid;
end
$$;

-- The message that is sent once when all of a batch is finished; makes the batch unless it is open or running.
create or replace function penstock.batch_set_end(
    queue text, batch text, payload jsonb, priority integer default 0, headers jsonb default null
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock.batch_open(queue, batch, end_message => penstock._stored(payload, priority, headers));
end
$$;

-- The message that is sent once when a batch was cancelled and nothing of it is in flight any more.
create or replace function penstock.batch_set_abort(
    queue text, batch text, payload jsonb, priority integer default 0, headers jsonb default null
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock.batch_open(queue, batch, abort_message => penstock._stored(payload, priority, headers));
end
$$;

-- A message to be sent later, in the form in which it is kept until then.
create or replace function penstock._stored(_payload jsonb, _priority integer, _headers jsonb) returns jsonb
language plpgsql as $$
begin
    perform penstock._check_payload(_payload is null);
    return jsonb_build_object(
        'payload', encode(convert_to(_payload::text, 'UTF8'), 'base64'), 'content_type', 'application/json',
        'options', penstock._options(_priority, null, null, null, null, null, _headers, null, null, null)
    );
end
$$;

create or replace function penstock._check_payload(_is_null boolean) returns void
language plpgsql as $$
begin
    if _is_null then
        raise exception using errcode = 'PN100', message = 'a payload is null',
            hint = 'A message is any JSON value; for JSON''s own null write ''null''.';
    end if;
end
$$;

-- The options of a message, checked.
create or replace function penstock._options(
    _priority integer, _delay_seconds double precision, _ttl_seconds double precision, _deadline_at timestamptz,
    _address text, _key text, _headers jsonb, _id uuid, _created_by text, _batch text
) returns jsonb
language plpgsql as $$
begin
    return jsonb_strip_nulls(jsonb_build_object(
        'priority', penstock._check_whole('priority', _priority, 0, 1000000),
        'delay_seconds', penstock._check_delay(_delay_seconds),
        'ttl_seconds', penstock._check_seconds('ttl_seconds', _ttl_seconds),
        'deadline_at', penstock.from_time(_deadline_at),
        'address', penstock._check_optional('address', _address),
        'key', penstock._check_optional('key', _key),
        'headers', penstock._check_headers(_headers::text),
        'id', _id,
        'created_by', penstock._check_name('created_by', coalesce(_created_by, 'system')),
        'batch', penstock._check_optional('batch', _batch)
    ));
end
$$;

create or replace function penstock._check_optional(_kind text, _name text) returns text
language sql immutable as $$
    select case when _name is not null then penstock._check_name(_kind, _name) end
$$;

-- A delay below a century, or none; one that is over means now.
create or replace function penstock._check_delay(_seconds double precision) returns double precision
language sql immutable as $$
    select case
        when _seconds > 0 then penstock._check_seconds('delay_seconds', _seconds)
        when _seconds <= 0 then 0
    end
$$;

-- A duration above 0 and below a century, or none.
create or replace function penstock._check_seconds(_kind text, _seconds double precision) returns double precision
language plpgsql immutable as $$
begin
    if _seconds <= 0 or _seconds > 3162240000 then
        raise exception using errcode = 'PN100', message = format(
            '%s must be more than 0 and at most 3162240000 seconds (a century), not %s', _kind, _seconds
        );
    end if;
    return _seconds;
end
$$;

-- Headers as they are kept, null when there are none. PostgreSQL's jsonb knows no NUL, so another character stands for it
-- while they are looked at.
create or replace function penstock._check_headers(_text text) returns text
language plpgsql immutable as $$
declare
    _headers jsonb := replace(_text, '\u0000', '\u0001');
begin
    if jsonb_typeof(_headers) = 'null' or _headers = '{}' then
        return null;
    elsif jsonb_typeof(_headers) <> 'object'
        or exists (select 1 from jsonb_each(_headers) as one where jsonb_typeof(one.value) <> 'string') then
        raise exception using errcode = 'PN100',
            message = format('headers must map strings to strings, not %s', penstock._shown(_text)),
            hint = 'For example ''{"trace": "17"}''.';
    elsif octet_length(_text) > 65536 then
        raise exception using errcode = 'PN100',
            message = format('headers have %s bytes: at most 65536 are allowed', octet_length(_text));
    end if;
    return _text;
end
$$;

-- ready -> leased for up to "limit" messages. The token is the right to settle them.
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
    perform penstock._check_whole('limit', receive."limit", 1, 1000000),
        penstock._check_name('queue', receive.queue), penstock._check_optional('group', receive."group"),
        penstock._check_seconds('lease_seconds', receive.lease_seconds);
    _name := penstock._check_name('consumer', coalesce(receive.consumer, penstock._session_name()));
    -- The row with the token comes last, and all others need it: they are kept in the meantime as rows, which may go to
    -- disk. In an array they could have no more than 1 GB.
    return query
    with taken as materialized (
        select * from penstock.take(receive.queue, receive."group", _name, receive."limit", receive.lease_seconds)
    )
    select coalesce(t.id::uuid, penstock.made_id(t.created_at, t.seq)), last.created_at, t.seq, t.payload,
        coalesce(t.content_type, 'application/octet-stream'), coalesce(t.headers::jsonb, '{}'), t.priority, t.attempt,
        penstock.to_time(t.created_at), coalesce(t.created_by, 'system'), penstock.to_time(t.expires_at),
        penstock.to_time(t.deadline_at), t.address, t.key, t.batch, penstock.to_time(t.lease_ends_at), last.content_type
    from taken as t
    cross join (select created_at, content_type from taken where seq is null) as last
    where t.seq is not null;
end
$$;

-- leased -> succeeded: the state.
create or replace function penstock.ack(
    queue text, id uuid, token bigint, "group" text default null, reason text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._settle_by_id(queue, id, token, "group", 'ack', reason, null);
end
$$;

-- leased -> held for the backoff, or for delay_seconds, then ready; failed when no retries are left.
create or replace function penstock.nak(
    queue text, id uuid, token bigint, reason text default null, delay_seconds double precision default null,
    "group" text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._settle_by_id(queue, id, token, "group", 'nak', reason, delay_seconds);
end
$$;

-- leased -> rejected: never again.
create or replace function penstock.reject(
    queue text, id uuid, token bigint, reason text default null, "group" text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._settle_by_id(queue, id, token, "group", 'reject', reason, null);
end
$$;

-- leased -> held for delay_seconds, attempts starting again.
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
    _queue text, _id uuid, _token bigint, _group text, _event text, _reason text, _delay double precision
) returns text
language plpgsql as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    _seq bigint := (penstock._locate(q, _id)).seq;
    _states text[];
begin
    _states := penstock.settle(
        _queue, coalesce(_group, penstock._default_group(q)), array[_event], array[_token], array[_seq], array[_reason],
        array[penstock._check_delay(_delay)]
    );
    if _states[1] is null then
        perform penstock._lose(_id);
    elsif _states[1] = 'out_of_order' then
        raise exception using errcode = 'PN207',
            message = format('message %s comes after another one of its lease that is still in flight', _id),
            hint = 'The queue is ordered: settle that one first. Nothing was changed.';
    end if;
    return _states[1];
end
$$;

create or replace function penstock._lose(_id uuid) returns void
language plpgsql as $$
begin
    raise exception using errcode = 'PN201', message = format('the lease on message %s is lost', _id),
        hint = 'It has ended, or the token is of another receive. Nothing was changed.';
end
$$;

-- leased -> leased, until at least that many seconds from now: the new end.
create or replace function penstock.extend(
    queue text, id uuid, token bigint, seconds double precision, "group" text default null
) returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(queue);
    _ends bigint[];
begin
    if seconds is null then
        raise exception using errcode = 'PN100', message = 'seconds is null', hint = 'Say how long from now.';
    end if;
    _ends := penstock.extend_each(
        queue, coalesce("group", penstock._default_group(q)), array[token], array[(penstock._locate(q, id)).seq],
        penstock._check_seconds('seconds', seconds)
    );
    if _ends[1] is null then
        perform penstock._lose(id);
    end if;
    return penstock.to_time(_ends[1]);
end
$$;

-- What happened to a message, over all groups, in order.
create or replace function penstock.audit(queue text, id uuid)
returns table (at timestamptz, event text, state text, by text, group_name text, reason text, attempt integer)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select penstock.to_time(t.at), t.event, t.state, coalesce(t.by, 'system'), t.group_name, t.reason, t.attempt
    from penstock.trail(audit.queue, audit.id) as t
$$;

-- What would be received next, without receiving it.
create or replace function penstock.peek(queue text, "limit" integer default 10, "group" text default null)
returns table (
    id uuid, "position" bigint, payload bytea, content_type text, headers jsonb, priority integer,
    created_at timestamptz, created_by text, expires_at timestamptz, deadline_at timestamptz, address text, key text,
    batch text
)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(m.message_id::uuid, penstock.made_id(m.created_at, m.seq)), m.seq, m.payload, coalesce(m.content_type, 'application/octet-stream'),
        coalesce(m.headers::jsonb, '{}'), m.priority, penstock.to_time(m.created_at), coalesce(m.created_by, 'system'),
        penstock.to_time(m.expires_at), penstock.to_time(m.deadline_at), m.address, m.key, m.batch
    from penstock.queue as q
    cross join lateral penstock.next_messages(
        q.name, coalesce(peek."group", penstock._default_group(q)), peek."limit"
    ) as m
    where q.name = peek.queue
$$;

-- Receives give nothing until resume; sends and settles go on.
create or replace function penstock.pause(queue text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select penstock.declare(queue, '{"paused": true}')
$$;

-- Receives give messages again.
create or replace function penstock.resume(queue text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select penstock.declare(queue, '{"paused": false}')
$$;
