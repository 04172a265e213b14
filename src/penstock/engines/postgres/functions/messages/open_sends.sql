-- Open sends: how a reader that follows positions knows up to where nothing can appear any more.
--
-- Positions commit out of order. A transaction that sends to a queue therefore holds a shared lock until it ends; the
-- number of the lock encodes the queue (20 bits) and the last position that was assigned before its own (44 bits).
-- Nothing ever waits for such a lock: readers only look up its holders. Two queues with the same 20 bits hold back
-- each other's readers, and nothing else.

-- The lock of a queue and a position; null stands for all queues.
create or replace function penstock._sender_key(_queue_id integer, _position bigint) returns bigint
language sql immutable parallel safe as $$
    select ((hashtextextended(coalesce(_queue_id::text, 'all'), 4777) & 1048575) << 44) | (_position & 17592186044415)
$$;

-- Announce a send. Call it after the transaction has its number and before it takes a position: once per queue, or once
-- for all queues when there are many, because a transaction can hold few locks.
create or replace function penstock._begin_sending(_queue_id integer) returns void
language plpgsql as $$
declare
    _known text := coalesce(current_setting('penstock.sending', true), '');
    _one text := '/' || _queue_id || '/';
    _for integer := _queue_id;
begin
    if _known = 'all' or strpos(_known, _one) > 0 then
        return;
    end if;
    if length(_known) > 200 then
        _for := null;
        _one := 'all';
        _known := '';
    end if;
    perform pg_advisory_xact_lock_shared(penstock._sender_key(_for, penstock._last_position()));
    -- It ends with the transaction or the savepoint, as the lock does.
    perform set_config('penstock.sending', _known || _one, true);
end
$$;

-- The last position that was assigned.
create or replace function penstock._last_position() returns bigint
language sql volatile as $$
    select coalesce(pg_sequence_last_value('penstock.position'), 0)
$$;

-- The position up to which nothing can appear in a queue any more: the last one assigned, or the one before the first
-- position of another open transaction that sends to the queue. What a later statement reads up to there does not
-- change.
create or replace function penstock.settled(_queue text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    -- Before the locks are read: a later sender gets a later position.
    _last bigint := penstock._last_position();
    _senders bigint[];
    _now_last bigint;
begin
    -- All of them, regardless of snapshots, which do not list transactions that began after the last one that has ended.
    _senders := array(
        select (l.classid::bigint & 4095) << 32 | l.objid::bigint
        from pg_locks as l
        where l.locktype = 'advisory' and l.objsubid = 1 and l.mode = 'ShareLock'
            and l.database = (select oid from pg_database where datname = current_database())
            and l.pid is distinct from pg_backend_pid()
            and l.classid::bigint >> 12 in (
                select (penstock._sender_key(one.id, 0) >> 44) & 1048575
                from (select queue_id from penstock.queue where name = _queue union all select null) as one (id)
            )
    );
    -- A lock has the lower bits of a position that was the last one when it was taken, so it is not beyond that of now.
    _now_last := penstock._last_position();
    return least(_last, (
        select min(_now_last - ((_now_last - low) & 17592186044415)) from unnest(_senders) as low
    ));
end
$$;
