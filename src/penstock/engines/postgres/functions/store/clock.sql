-- The clock of the store and the conversions of times. Times in tables are microseconds since 1970.

-- The injected clock of tests; the real one in other stores, where moving the clock would end the leases of others.
create or replace function penstock.injected_now(_injected text) returns bigint
language plpgsql volatile parallel safe as $$
begin
    if (select injected_clock from penstock.store) then
        return _injected::bigint;
    end if;
    return (extract(epoch from clock_timestamp()) * 1000000)::bigint;
end
$$;

-- The clock of the store, in microseconds. A single expression, so that the planner can inline it.
create or replace function penstock.now_us() returns bigint
language sql volatile parallel safe as $$
    select case when coalesce(current_setting('penstock.now', true), '') = ''
        then (extract(epoch from clock_timestamp()) * 1000000)::bigint
        else penstock.injected_now(current_setting('penstock.now'))
    end
$$;

-- A random number in [0, 1).
create or replace function penstock._random_number() returns double precision
language plpgsql volatile as $$
declare
    _injected text := current_setting('penstock.random', true);
begin
    -- Two steps, because the second is a query and the first is not.
    if _injected <> '' then
        if (select injected_clock from penstock.store) then
            return _injected::double precision;
        end if;
    end if;
    return random();
end
$$;

-- Convert microseconds to a timestamp.
create or replace function penstock.to_time(_at bigint) returns timestamptz
language sql immutable parallel safe as $$
    select timestamptz 'epoch' + _at * interval '1 microsecond'
$$;

-- Convert a timestamp to microseconds.
create or replace function penstock.from_time(_at timestamptz) returns bigint
language sql immutable parallel safe as $$
    select (extract(epoch from _at) * 1000000)::bigint
$$;

-- Convert seconds to microseconds.
create or replace function penstock._microseconds(_seconds double precision) returns bigint
language sql immutable parallel safe as $$
    select round(_seconds::numeric * 1000000)::bigint
$$;
