-- Prepared writes: large parts of a sink go straight into the log, in a transaction that is not committed but prepared
-- (PREPARE TRANSACTION). The server keeps it until somebody commits it or rolls it back.

-- Register a part that is to be written by a transaction of its own: the name of the transaction. Null when the part
-- must be staged instead: because its messages need work one by one, the server keeps no prepared transactions, or the
-- role may only call functions.
create or replace function penstock.begin_prepared_write(_queue text, _key text, _part text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
    _name text := 'penstock ' || gen_random_uuid();
begin
    if current_setting('max_prepared_transactions') = '0' or not penstock._accepts_plain(q)
        or not has_table_privilege(session_user, 'penstock.log', 'insert') then
        return null;
    end if;
    perform penstock._ensure_primary_group(q);
    insert into penstock.prepared_write (name, queue_id, key, part, begun_at)
    values (_name, q.queue_id, _key, _part, penstock.now_us());
    return _name;
end
$$;

-- Whether plain messages of a queue need nothing but a row in the log.
create or replace function penstock._accepts_plain(q penstock.queue) returns boolean
language sql immutable as $$
    select q.delay_seconds = 0 and q.ttl_seconds is null and not q.ordered and not q.announces
$$;

-- Reserve one of the server's prepared transactions, half of which are left to others; false when none is free. It must
-- be the first call of the transaction: the reservation and the share lock on the row end with it.
create or replace function penstock.reserve_prepared_write(_name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- Before any position.
    perform pg_current_xact_id();
    perform 1 from penstock.prepared_write where name = _name and fate is null for key share;
    if found then
        for _place in 1..(current_setting('max_prepared_transactions')::integer + 1) / 2 loop
            if pg_try_advisory_xact_lock(1347310676, _place) then
                return true;
            end if;
        end loop;
    end if;
    return false;
end
$$;

-- Reserve positions for messages of one priority: their lane and their positions, only the first when they are
-- contiguous. The longest payload has _longest bytes. Nobody is notified: a transaction with a notification cannot be
-- prepared.
create or replace function penstock.reserve_positions(
    _queue text, _priority integer, _count integer, _longest integer,
    out created_at bigint, out lane_id integer, out first bigint, out positions bigint[]
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
begin
    perform penstock._check_size(_longest, q.max_payload_bytes);
    created_at := penstock.now_us();
    lane_id := penstock._ensure_lane(q.queue_id, _priority, floor(penstock._random_number() * q.shards)::integer);
    perform penstock._begin_sending(q.queue_id);
    -- One after the other: writers whose positions alternate would write to the same pages of the indexes.
    perform pg_advisory_xact_lock(1347310677, 0);
    select array_agg(nextval('penstock.position')) into positions from generate_series(1, _count);
    first := positions[1];
    if positions[_count] - first = _count - 1 then
        positions := null;
    end if;
end
$$;

-- Record that the part is complete and its transaction prepared; false when it was given up meanwhile.
create or replace function penstock.finish_prepared_write(_name text, _messages bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update penstock.prepared_write set messages = _messages where name = _name and fate is null;
    return found;
end
$$;

-- Unregister a write that was not prepared: the part is staged instead.
create or replace function penstock.withdraw_prepared_write(_name text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    delete from penstock.prepared_write where name = _name and messages is null and fate is null
$$;

-- Decide on the prepared writes of a key: those of these parts are committed, the others rolled back. Returns the
-- number of messages.
create or replace function penstock._commit_prepared_writes(q penstock.queue, _key text, _parts text[]) returns bigint
language plpgsql as $$
declare
    _is_gone boolean;
    _count bigint;
begin
    update penstock.prepared_write set fate = case when part = any (_parts) then 'kept' else 'dropped' end
    where queue_id = q.queue_id and key = _key and fate is null;
    select coalesce(bool_or(p.fate = 'dropped' or p.messages is null or x.gid is null), false),
        coalesce(sum(p.messages), 0)
    into _is_gone, _count
    from penstock.prepared_write as p
    left join pg_prepared_xacts as x on x.gid = p.name and x.database = current_database()
    where p.queue_id = q.queue_id and p.key = _key and p.part = any (_parts);
    if _is_gone then
        raise exception using errcode = 'PN200', message = format(
            'a transaction that was to write to queue %s under %s is gone, because it waited for more than a day or '
            'somebody ended it: nothing was sent, write it again', penstock._quote_value(q.name), penstock._quote_value(_key)
        );
    end if;
    return _count;
end
$$;

-- Prepared writes of a key that must be ended; without a key those of all keys, also those that nobody decided on
-- within a day, but not those of other roles, which only a superuser may end. A prepared transaction can only be ended
-- by a statement of its own.
create or replace function penstock.decided_prepared_writes(_queue text default null, _key text default null)
returns table (name text, fate text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    if _key is null then
        update penstock.prepared_write set fate = 'dropped'
        where fate is null and begun_at < penstock.now_us() - 86400000000;
    end if;
    return query
    select p.name, p.fate from penstock.prepared_write as p join penstock.queue as q using (queue_id)
    where p.fate is not null and case when _key is not null then q.name = _queue and p.key = _key
        else not exists (
            select 1 from pg_prepared_xacts as x
            where x.gid = p.name and x.owner <> session_user
                and not (select r.rolsuper from pg_roles as r where r.rolname = session_user)
        ) end;
end
$$;

-- Delete prepared writes whose transactions have ended, and wake receivers of their messages.
create or replace function penstock.forget_prepared_writes(_names text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _queue_id integer;
begin
    for _queue_id in
        with ended as (
            select p.name from penstock.prepared_write as p
            where p.name = any (_names) and p.fate is not null for update skip locked
        ),
        gone as (
            delete from penstock.prepared_write as p using ended where p.name = ended.name returning p.queue_id, p.fate
        )
        select distinct queue_id from gone where fate = 'kept'
    loop
        perform penstock._wake_receivers(_queue_id);
    end loop;
end
$$;
