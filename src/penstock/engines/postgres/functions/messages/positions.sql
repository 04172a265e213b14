-- Sets of positions as multiranges.

-- Positions as a multirange; null when they are contiguous.
create or replace function penstock._compact_positions(_positions bigint[], _first bigint, _last bigint) returns int8multirange
language sql immutable as $$
    select case
        when _last - _first + 1 = cardinality(_positions) then null
        else (select range_agg(int8range(one, one + 1)) from unnest(_positions) as one)
    end
$$;

-- The multirange of a range that was stored with or without explicit positions.
create or replace function penstock._expand_positions(_first bigint, _last bigint, _positions int8multirange) returns int8multirange
language sql immutable as $$
    select coalesce(_positions, int8multirange(int8range(_first, _last + 1)))
$$;

-- The positions of a multirange as an array.
create or replace function penstock._list_positions(_positions int8multirange) returns bigint[]
language sql immutable as $$
    select coalesce(array_agg(position), '{}')
    from unnest(_positions) as stretch
    cross join lateral generate_series(lower(stretch), upper(stretch) - 1) as position
$$;
