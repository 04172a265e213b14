-- Validation of sends. SQL clients can pass any value, and a message with an invalid one must not be stored where
-- nobody would ever read it.

-- Validate payloads, content types and options of a send.
create or replace function penstock._check_messages(_payloads bytea[], _types text[], _options jsonb) returns void
language plpgsql as $$
declare
    _n integer := cardinality(_payloads);
    one record;
begin
    if _payloads is null or array_position(_payloads, null) is not null then
        perform penstock._refuse_null(_payloads);
    elsif cardinality(_types) is distinct from _n then
        raise exception using errcode = 'PN100', message = format(
            '%s payloads have %s content types: give one, or null, for each', _n, coalesce(cardinality(_types)::text, 'no')
        );
    elsif jsonb_typeof(_options) not in ('array', 'null')
        or (jsonb_typeof(_options) = 'array' and jsonb_array_length(_options) <> _n) then
        raise exception using errcode = 'PN100', message = format(
            'options must be an array of %s objects, one for each payload, not %s', _n, penstock._quote_value(_options::text)
        );
    end if;
    -- Only messages with options are checked one by one.
    for one in
        select o from jsonb_array_elements(case when jsonb_typeof(_options) = 'array' then _options else '[]' end) as o
        where o not in ('{}', 'null')
    loop
        perform penstock._check_option(one.o);
    end loop;
end
$$;

-- Refuse null payloads. Arrays may start at any index; the error counts from 1.
create or replace function penstock._refuse_null(_payloads bytea[]) returns void
language plpgsql as $$
begin
    raise exception using errcode = 'PN100', message = case when _payloads is null
        then 'payloads are null: give an array of them, if only an empty one'
        else format(
            'payload %s of %s is null: a message is bytes, if only none',
            array_position(_payloads, null) - array_lower(_payloads, 1) + 1, cardinality(_payloads)
        )
    end;
end
$$;

-- Validate the options of one message.
create or replace function penstock._check_option(_option jsonb) returns void
language plpgsql as $$
declare
    _field text;
    _value jsonb;
    _wanted text;
begin
    if jsonb_typeof(_option) <> 'object' then
        raise exception using errcode = 'PN100', message = format(
            'the options of a message must be an object, not %s', penstock._quote_value(_option::text)
        );
    end if;
    if _option ->> 'batch_queue' is not null and _option ->> 'batch' is null then
        raise exception using errcode = 'PN100', message = format(
            'batch_queue %s needs the name of a batch of that queue (batch)', penstock._quote_value(_option ->> 'batch_queue')
        );
    end if;
    for _field, _value in select key, value from jsonb_each(_option) where value <> 'null' loop
        _wanted := case
            when _field = 'priority' and (
                jsonb_typeof(_value) <> 'number' or _value::numeric % 1 <> 0 or _value::numeric not between 0 and 1000000
            ) then 'a whole number between 0 and 1000000'
            when _field = 'delay_seconds' and (jsonb_typeof(_value) <> 'number' or _value::numeric > 3162240000)
                then 'a number of seconds, at most 3162240000 (a century)'
            when _field = 'ttl_seconds'
                and (jsonb_typeof(_value) <> 'number' or _value::numeric <= 0 or _value::numeric > 3162240000)
                then 'more than 0 and at most 3162240000 seconds (a century)'
            when _field = 'batch_after' and (
                jsonb_typeof(_value) <> 'number' or _value::numeric % 1 <> 0 or _value::numeric not between 0 and 9e18
            ) then 'the number of a batch'
            when _field = 'deadline_at' and (
                jsonb_typeof(_value) <> 'number' or _value::numeric % 1 <> 0
                or _value::numeric not between -62135596800000000 and 253402300799999999
            ) then 'a time in microseconds since 1970, within the years 1 to 9999'
            when _field in ('address', 'key', 'batch', 'batch_queue', 'created_by', 'id', 'headers') and jsonb_typeof(_value) <> 'string'
                then 'text'
            when _field = 'is_exact' and jsonb_typeof(_value) <> 'boolean' then 'true or false'
            when _field not in (
                'priority', 'delay_seconds', 'ttl_seconds', 'deadline_at', 'address', 'key', 'batch', 'created_by', 'id',
                'headers', 'batch_after', 'batch_queue', 'is_exact'
            ) then 'left out: there is no such option'
        end;
        if _wanted is not null then
            raise exception using errcode = 'PN100',
                message = format('%s must be %s, not %s', _field, _wanted, penstock._quote_value(_value::text));
        end if;
        if _field in ('address', 'key', 'batch', 'batch_queue', 'created_by') then
            perform penstock._check_name(_field, _value #>> '{}');
        elsif _field = 'headers' then
            perform penstock._check_headers(_value #>> '{}');
        end if;
    end loop;
end
$$;
