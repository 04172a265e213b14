-- Large parts of a sink go straight into the log, written by a transaction that is not committed but pledged (PREPARE
-- TRANSACTION): the server keeps it, whatever dies, until it is told what becomes of it.

-- Begin to write a part: the name for its transaction. Null when the part has to be put aside instead: because its
-- messages must be looked at one by one, the server keeps no transactions, or the role may only call verbs.
create or replace function penstock.begin_pledge(_queue text, _key text, _part text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
    _name text := 'penstock ' || gen_random_uuid();
begin
    if current_setting('max_prepared_transactions') = '0' or not penstock._takes_plain(q)
        or not has_table_privilege(session_user, 'penstock.log', 'insert') then
        return null;
    end if;
    perform penstock._ensure_primary(q);
    insert into penstock.pledge (name, queue_id, key, part, begun_at)
    values (_name, q.queue_id, _key, _part, penstock.now_us());
    return _name;
end
$$;

-- Whether plain messages of a queue need nothing but a row in the log.
create or replace function penstock._takes_plain(q penstock.queue) returns boolean
language sql immutable as $$
    select q.delay_seconds = 0 and q.ttl_seconds is null and not q.ordered and not q.announces
$$;

-- First of all in the transaction: a place among those that the server can keep, half of which are left to others. False
-- when none is free. Both the place and the share in the row end with the transaction.
create or replace function penstock.take_place(_name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- Before any position.
    perform pg_current_xact_id();
    perform 1 from penstock.pledge where name = _name and fate is null for key share;
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

-- Where the next messages of one priority go: their lane, and positions that mostly follow each other (then
-- only the first). The longest payload has _longest bytes. Nobody is woken: a transaction that has notified anybody cannot be
-- pledged.
create or replace function penstock.take_positions(
    _queue text, _priority integer, _count integer, _longest integer,
    out created_at bigint, out lane_id integer, out first bigint, out seqs bigint[]
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
begin
    if _longest > q.max_payload_bytes then
        raise exception using errcode = 'PN105', message = format(
            'payload has %s bytes: this queue takes at most %s (max_payload_bytes)', _longest, q.max_payload_bytes
        );
    end if;
    created_at := penstock.now_us();
    lane_id := penstock._lane(q.queue_id, _priority, floor(penstock._random() * q.shards)::integer);
    perform penstock._begin_sending(q.queue_id);
    -- One after the other: writers whose positions alternate would write to the same pages of the indexes.
    perform pg_advisory_xact_lock(1347310677, 0);
    select array_agg(nextval('penstock.position')) into seqs from generate_series(1, _count);
    first := seqs[1];
    if seqs[_count] - first = _count - 1 then
        seqs := null;
    end if;
end
$$;

-- The part is whole, and its transaction pledged; false when it was given up meanwhile.
create or replace function penstock.end_pledge(_name text, _messages bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update penstock.pledge set messages = _messages where name = _name and fate is null;
    return found;
end
$$;

-- The pledge is not made: the part is put aside instead.
create or replace function penstock.withdraw_pledge(_name text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    delete from penstock.pledge where name = _name and messages is null and fate is null
$$;

-- What becomes of the pledges of a key: those of these parts are kept. Counts their messages.
create or replace function penstock._keep_pledges(q penstock.queue, _key text, _parts text[]) returns bigint
language plpgsql as $$
declare
    _is_gone boolean;
    _count bigint;
begin
    update penstock.pledge set fate = case when part = any (_parts) then 'kept' else 'dropped' end
    where queue_id = q.queue_id and key = _key and fate is null;
    select coalesce(bool_or(p.fate = 'dropped' or p.messages is null or x.gid is null), false),
        coalesce(sum(p.messages), 0)
    into _is_gone, _count
    from penstock.pledge as p
    left join pg_prepared_xacts as x on x.gid = p.name and x.database = current_database()
    where p.queue_id = q.queue_id and p.key = _key and p.part = any (_parts);
    if _is_gone then
        raise exception using errcode = 'PN200', message = format(
            'a transaction that was to write to queue %s under %s is gone, because it waited for more than a day or '
            'somebody ended it: nothing was sent, write it again', penstock._shown(q.name), penstock._shown(_key)
        );
    end if;
    return _count;
end
$$;

-- Give up the pledges of a key of which nothing was decided.
create or replace function penstock._drop_pledges(_queue_id integer, _key text) returns void
language sql as $$
    update penstock.pledge set fate = 'dropped' where queue_id = _queue_id and key = _key and fate is null
$$;

-- Pledges of a key that have to be brought to their end; of all keys without one, and then also those that nobody decided
-- on in a day, but not those of other roles, which only a superuser may end. Only a statement of its own can end a prepared
-- transaction.
create or replace function penstock.decided_pledges(_queue text default null, _key text default null)
returns table (name text, fate text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    if _key is null then
        update penstock.pledge set fate = 'dropped'
        where fate is null and begun_at < penstock.now_us() - 86400000000;
    end if;
    return query
    select p.name, p.fate from penstock.pledge as p join penstock.queue as q using (queue_id)
    where p.fate is not null and case when _key is not null then q.name = _queue and p.key = _key
        else not exists (
            select 1 from pg_prepared_xacts as x
            where x.gid = p.name and x.owner <> session_user
                and not (select r.rolsuper from pg_roles as r where r.rolname = session_user)
        ) end;
end
$$;

-- Forget pledges whose transactions have ended, and wake those who wait for what they have sent.
create or replace function penstock.forget_pledges(_names text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _queue_id integer;
begin
    for _queue_id in
        with ended as (
            select p.name from penstock.pledge as p
            where p.name = any (_names) and p.fate is not null for update skip locked
        ),
        gone as (
            delete from penstock.pledge as p using ended where p.name = ended.name returning p.queue_id, p.fate
        )
        select distinct queue_id from gone where fate = 'kept'
    loop
        perform penstock._wake(_queue_id);
    end loop;
end
$$;
