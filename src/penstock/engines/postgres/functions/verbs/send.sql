-- Sending for SQL clients: one message at a time, JSON payloads, named options. Programs that send thousands call append
-- and send_messages.

-- Send a JSON value and return its id. Options mean the same as in every interface; null stands for the queue's policy.
create or replace function penstock.send(
    queue text, payload jsonb, priority integer default 0, delay_seconds double precision default null,
    ttl_seconds double precision default null, deadline_at timestamptz default null, address text default null,
    key text default null, headers jsonb default null, id uuid default null, created_by text default 'system',
    batch text default null, batch_queue text default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._send_one(
        queue, convert_to(payload::text, 'UTF8'), 'application/json',
        penstock._build_options(
            priority, delay_seconds, ttl_seconds, deadline_at, address, key, headers, id, created_by, batch, batch_queue
        )
    );
end
$$;

-- Send bytes.
create or replace function penstock.send_bytes(
    queue text, payload bytea, content_type text default null, priority integer default 0,
    delay_seconds double precision default null, ttl_seconds double precision default null,
    deadline_at timestamptz default null, address text default null, key text default null, headers jsonb default null,
    id uuid default null, created_by text default 'system', batch text default null, batch_queue text default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return penstock._send_one(
        queue, payload, penstock._check_optional('content_type', content_type),
        penstock._build_options(
            priority, delay_seconds, ttl_seconds, deadline_at, address, key, headers, id, created_by, batch, batch_queue
        )
    );
end
$$;

-- Send many JSON values at once. Returns their ids in order.
create or replace function penstock.send_many(queue text, payloads jsonb[]) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock._check_payload(payloads is null or array_position(payloads, null) is not null);
    return query
    select sent::uuid
    from unnest(penstock.send_messages(
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
    return (penstock.send_messages(_queue, array[_payload], array[_content_type], jsonb_build_array(_options)))[1]::uuid;
end
$$;

-- Set the message that is sent once when all of a batch is finished; creates the batch unless it is open or running.
create or replace function penstock.batch_set_end(
    queue text, batch text, payload jsonb, priority integer default 0, headers jsonb default null
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock.batch_open(queue, batch, end_message => penstock._stored_message(payload, priority, headers));
end
$$;

-- Set the message that is sent once when a batch was cancelled and nothing of it is in flight any more.
create or replace function penstock.batch_set_abort(
    queue text, batch text, payload jsonb, priority integer default 0, headers jsonb default null
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock.batch_open(queue, batch, abort_message => penstock._stored_message(payload, priority, headers));
end
$$;

-- A message to be sent later, in its stored form.
create or replace function penstock._stored_message(_payload jsonb, _priority integer, _headers jsonb) returns jsonb
language plpgsql as $$
begin
    perform penstock._check_payload(_payload is null);
    return jsonb_build_object(
        'payload', encode(convert_to(_payload::text, 'UTF8'), 'base64'), 'content_type', 'application/json',
        'options', penstock._build_options(_priority, null, null, null, null, null, _headers, null, null, null)
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

-- Validate the options of a message and build their JSON.
create or replace function penstock._build_options(
    _priority integer, _delay_seconds double precision, _ttl_seconds double precision, _deadline_at timestamptz,
    _address text, _key text, _headers jsonb, _id uuid, _created_by text, _batch text, _batch_queue text default null
) returns jsonb
language plpgsql as $$
begin
    return jsonb_strip_nulls(jsonb_build_object(
        'priority', penstock._check_integer('priority', _priority, 0, 1000000),
        'delay_seconds', penstock._check_delay(_delay_seconds),
        'ttl_seconds', penstock._check_seconds('ttl_seconds', _ttl_seconds),
        'deadline_at', penstock._check_time('deadline_at', _deadline_at),
        'address', penstock._check_optional('address', _address),
        'key', penstock._check_optional('key', _key),
        'headers', penstock._check_headers(_headers::text),
        'id', _id,
        'created_by', penstock._check_name('created_by', coalesce(_created_by, 'system')),
        'batch', penstock._check_optional('batch', _batch),
        'batch_queue', penstock._check_optional('batch_queue', _batch_queue)
    ));
end
$$;

create or replace function penstock._check_optional(_kind text, _name text) returns text
language sql immutable as $$
    select case when _name is not null then penstock._check_name(_kind, _name) end
$$;

-- Validate a delay: below a century, or null; a negative one means now. NaN is above every number.
create or replace function penstock._check_delay(_seconds double precision) returns double precision
language plpgsql immutable as $$
begin
    if _seconds > 3162240000 then
        raise exception using errcode = 'PN100', message = format(
            'delay_seconds must be a number of seconds, at most 3162240000 (a century), not %s', _seconds
        );
    end if;
    return case when _seconds < 0 then 0 else _seconds end;
end
$$;

-- Validate a duration: above 0 and below a century, or null.
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

-- Stored headers as jsonb, which cannot contain NUL: U+FFFF stands for it, as in a reason. A backslash before \u0000 may
-- itself be escaped; then the text is no NUL.
create or replace function penstock.headers_jsonb(_headers text) returns jsonb
language sql immutable parallel safe as $$
    select coalesce(case
        when strpos(_headers, '\u0000') = 0 then _headers
        else regexp_replace(_headers, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\uffff', 'g')
    end::jsonb, '{}')
$$;

-- Validate headers and return their stored form, null when there are none. jsonb cannot contain NUL, so another
-- character replaces it during the check.
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
            message = format('headers must map strings to strings, not %s', penstock._quote_value(_text)),
            hint = 'For example ''{"trace": "17"}''.';
    elsif octet_length(_text) > 65536 then
        raise exception using errcode = 'PN100',
            message = format('headers have %s bytes: at most 65536 are allowed', octet_length(_text));
    end if;
    return _text;
end
$$;
