-- Time, chance, ids, wake-ups: what every verb stands on.

-- Tests may set the clock, but only in a store that was made for it: whoever can move it can end the leases of others.
create or replace function penstock.injected_now(_injected text) returns bigint
language plpgsql volatile parallel safe as $$
begin
    if (select injected_clock from penstock.store) then
        return _injected::bigint;
    end if;
    return (extract(epoch from clock_timestamp()) * 1000000)::bigint;
end
$$;

-- The clock of the store. An expression and not a block, so that it becomes a part of whatever asks for the time.
create or replace function penstock.now_us() returns bigint
language sql volatile parallel safe as $$
    select case when coalesce(current_setting('penstock.now', true), '') = ''
        then (extract(epoch from clock_timestamp()) * 1000000)::bigint
        else penstock.injected_now(current_setting('penstock.now'))
    end
$$;

-- A number from 0 to below 1.
create or replace function penstock._random() returns double precision
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

-- Microseconds as a time.
create or replace function penstock.to_time(_at bigint) returns timestamptz
language sql immutable parallel safe as $$
    select timestamptz 'epoch' + _at * interval '1 microsecond'
$$;

-- A time as microseconds.
create or replace function penstock.from_time(_at timestamptz) returns bigint
language sql immutable parallel safe as $$
    select (extract(epoch from _at) * 1000000)::bigint
$$;

-- Seconds as microseconds.
create or replace function penstock._us(_seconds double precision) returns bigint
language sql immutable parallel safe as $$
    select round(_seconds::numeric * 1000000)::bigint
$$;

-- The id of a message whose id was not chosen: a UUID of version 7 that ends with its position.
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

-- A value as it may stand in an error: quoted, and short however long it is.
create or replace function penstock._shown(_value text) returns text
language sql immutable parallel safe as $$
    select case when length(shown) > 80 then left(shown, 79) || '…' else shown end
    from (select '''' || replace(regexp_replace(_value, '[[:cntrl:]]', '?', 'g'), '''', '\''') || '''' as shown) as one
$$;

-- The one rule for names of queues, groups, consumers, addresses, keys, batches and schedules.
create or replace function penstock._check_name(_kind text, _name text) returns text
language plpgsql immutable as $$
begin
    if _name is null or _name = '' then
        raise exception using errcode = 'PN101',
            message = format('%s is empty: a name has 1 to 255 bytes of UTF-8', _kind);
    elsif octet_length(_name) > 255 then
        raise exception using errcode = 'PN101', message = format(
            '%s %s has %s bytes: a name has at most 255 bytes of UTF-8', _kind, penstock._shown(_name), octet_length(_name)
        );
    elsif _name ~ '[\u0001-\u001f\u007f-\u009f]' then
        raise exception using errcode = 'PN101',
            message = format('%s %s has a control character: a name has none', _kind, penstock._shown(_name));
    end if;
    return _name;
end
$$;

-- A whole number within its bounds.
create or replace function penstock._check_whole(_kind text, _number bigint, _from bigint, _upto bigint) returns bigint
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

-- The snapshot of now, with this transaction as one that has not ended: what it writes later must not count as seen.
-- (PostgreSQL leaves a transaction out of its own snapshots.)
create or replace function penstock._snapshot() returns pg_snapshot
language plpgsql volatile as $$
declare
    _snap pg_snapshot := pg_current_snapshot();
    _own xid8 := pg_current_xact_id_if_assigned();
begin
    if _own is null or _own >= pg_snapshot_xmax(_snap) then
        return _snap;
    end if;
    return (
        select format(
            '%s:%s:%s', least(pg_snapshot_xmin(_snap), _own), pg_snapshot_xmax(_snap), string_agg(x::text, ',' order by x)
        )
        from (select _own as x union select x from pg_snapshot_xip(_snap) as x) as open
    )::pg_snapshot;
end
$$;

-- Wake those who wait for the queue, if anybody listens: a NOTIFY makes all commits of the cluster that have one wait
-- for each other.
create or replace function penstock._wake(_queue_id integer) returns void
language plpgsql as $$
begin
    if penstock._somebody_listens() then
        perform penstock._notify('penstock', _queue_id::text);
    end if;
end
$$;

-- Whether anybody listens: listeners hold this lock as a shared one, so that it cannot be had meanwhile. It is given back
-- within the expression that takes it. That must stay one expression: a cancellation is noticed between statements, and
-- would leave a lock of the session behind that keeps listeners out.
create or replace function penstock._somebody_listens() returns boolean
language sql volatile as $$
    select case
        when pg_try_advisory_lock(7305793389475492353) then not pg_advisory_unlock(7305793389475492353)
        else true
    end
$$;

-- A notification, unless this transaction or session does without (set local penstock.notify = off): a transaction that
-- has one cannot be prepared for a two-phase commit. Whoever waits also looks from time to time.
create or replace function penstock._notify(_channel text, _payload text) returns void
language plpgsql as $$
begin
    if coalesce(current_setting('penstock.notify', true), '') not in ('off', 'false', 'no', '0') then
        perform pg_notify(_channel, _payload);
    end if;
end
$$;

-- Refuse to answer from a snapshot that may be older than the lease in question: what has begun since is not in it.
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

-- One multirange for positions, and null when they are a row without gaps.
create or replace function penstock._gaps(_seqs bigint[], _first bigint, _last bigint) returns int8multirange
language sql immutable as $$
    select case
        when _last - _first + 1 = cardinality(_seqs) then null
        else (select range_agg(int8range(one, one + 1)) from unnest(_seqs) as one)
    end
$$;

-- All positions from the first to the last, or the given ones.
create or replace function penstock._all(_first bigint, _last bigint, _positions int8multirange) returns int8multirange
language sql immutable as $$
    select coalesce(_positions, int8multirange(int8range(_first, _last + 1)))
$$;
