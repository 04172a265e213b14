-- Checks of names and numbers, and how a value is quoted in an error message.

-- A value quoted for an error message, truncated to 80 characters.
create or replace function penstock._quote_value(_value text) returns text
language sql immutable parallel safe as $$
    select case when length(shown) > 80 then left(shown, 79) || '…' else shown end
    from (select '''' || replace(regexp_replace(_value, '[[:cntrl:]]', '?', 'g'), '''', '\''') || '''' as shown) as one
$$;

-- Validate the name of a queue, group, consumer, address, key, batch or schedule.
create or replace function penstock._check_name(_kind text, _name text) returns text
language plpgsql immutable as $$
begin
    if _name is null or _name = '' then
        raise exception using errcode = 'PN101',
            message = format('%s is empty: a name has 1 to 255 bytes of UTF-8', _kind);
    elsif octet_length(_name) > 255 then
        raise exception using errcode = 'PN101', message = format(
            '%s %s has %s bytes: a name has at most 255 bytes of UTF-8', _kind, penstock._quote_value(_name), octet_length(_name)
        );
    elsif _name ~ '[\u0001-\u001f\u007f-\u009f]' then
        raise exception using errcode = 'PN101',
            message = format('%s %s has a control character: a name has none', _kind, penstock._quote_value(_name));
    end if;
    return _name;
end
$$;

-- Validate that an integer is within its bounds.
create or replace function penstock._check_integer(_kind text, _number bigint, _from bigint, _upto bigint) returns bigint
language plpgsql immutable as $$
begin
    if _number is null or _number not between _from and _upto then
        raise exception using errcode = 'PN100', message = format(
            '%s must be between %s and %s, not %s', _kind, _from, _upto, coalesce(_number::text, 'null')
        );
    end if;
    return _number;
end
$$;

-- Convert a time to microseconds, and refuse one that clients cannot represent: their years are 1 to 9999.
create or replace function penstock._check_time(_kind text, _at timestamptz) returns bigint
language plpgsql stable as $$
begin
    if _at < timestamptz '0001-01-01 00:00:00+00' or _at >= timestamptz '10000-01-01 00:00:00+00' then
        raise exception using errcode = 'PN100',
            message = format('%s must be within the years 1 to 9999 (UTC), not %s', _kind, _at);
    end if;
    return penstock.from_time(_at);
end
$$;

-- Refuse isolation levels whose snapshot may be older than the lease in question.
create or replace function penstock._check_isolation(_verb text) returns void
language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'PN100', message = format(
            '%s needs a transaction of isolation level read committed, not %s: it does not see what others have done '
            'since its first statement', _verb, current_setting('transaction_isolation')
        );
    end if;
end
$$;
