-- Up to which position every transaction has ended, so that nothing can appear before it.

-- Record a position that is decided once all transactions before this one have ended. Positions are taken after a
-- transaction number, so the transactions that took the positions up to this one have lower numbers than the one
-- assigned now. (The end of a snapshot would not do: transactions beyond it may have begun, and sent.) A transaction
-- that had its number before records nothing.
create or replace function penstock._record_decided_position() returns void
language plpgsql as $$
declare
    _position bigint := penstock._last_position();
begin
    perform penstock._check_cluster();
    if pg_current_xact_id_if_assigned() is null and not exists (select 1 from penstock.decided_position where position = _position) then
        insert into penstock.decided_position (position, tx) values (_position, pg_current_xact_id());
    end if;
end
$$;

-- The last position up to which everything is decided, for a whole sweep: it may wait a little, and never falls.
-- Transactions that have just begun get a moment to end; long ones are not waited for.
create or replace function penstock.decide() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _position bigint;
    _open integer;
begin
    -- Before this transaction has a number.
    perform penstock._record_decided_position();
    for attempt in 1..10 loop
        select max(position) filter (where tx <= pg_snapshot_xmin(pg_current_snapshot())),
            count(*) filter (where tx > pg_snapshot_xmin(pg_current_snapshot()))
        into _position, _open
        from penstock.decided_position;
        exit when _open = 0 or _open > 3;
        perform pg_sleep(0.002);
    end loop;
    -- Older rows tell where long queues begin, see penstock._first_unfinished_position: fewer are kept the older they are.
    if (select count(*) from penstock.decided_position) > 1000 then
        delete from penstock.decided_position where position in (
            select placed.position from (
                select position, row_number() over (order by position) as place, count(*) over () as places
                from penstock.decided_position
            ) as placed
            where placed.place <= placed.places - 500 and placed.place % 2 = 0
        );
    end if;
    return coalesce(_position, 0);
end
$$;

-- The last position that is decided now, by the records of this store alone. A position that a caller has kept may be
-- that of a server whose last transactions were undone by a restore or a failover: it is assigned again, or will be.
create or replace function penstock._decided_position() returns bigint
language sql volatile as $$
    select coalesce(max(position), 0) from penstock.decided_position where tx <= pg_snapshot_xmin(pg_current_snapshot())
$$;
