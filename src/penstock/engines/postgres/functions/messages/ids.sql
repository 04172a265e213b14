-- Message ids: UUIDs of version 7.

-- The id of a message whose id was not chosen: a UUID of version 7 that ends with its position. The
-- parameter keeps its first name: views of users may depend on the function.
create or replace function penstock.made_id(_created_at bigint, _salt integer, _seq bigint) returns uuid
language sql immutable parallel safe as $$
    select (
        lpad(to_hex(_created_at / 1000), 12, '0') || '7' || lpad(to_hex(_salt >> 14), 3, '0')
        || lpad(to_hex(32768 | (_salt & 16383)), 4, '0') || lpad(to_hex(_seq), 12, '0')
    )::uuid
$$;

-- The same for a message of this store.
create or replace function penstock.made_id(_created_at bigint, _seq bigint) returns uuid
language sql stable parallel safe as $$
    select penstock.made_id(_created_at, (select salt from penstock.store), _seq)
$$;

-- A UUID of version 7 with random bits, for messages that have no position yet.
create or replace function penstock._random_id(_now bigint) returns uuid
language sql volatile as $$
    select (lpad(to_hex(_now / 1000), 12, '0') || '7' || substr(bits, 14, 3) || substr(bits, 17, 16))::uuid
    from replace(gen_random_uuid()::text, '-', '') as bits
$$;
