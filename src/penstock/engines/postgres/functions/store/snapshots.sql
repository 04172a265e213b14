-- Snapshots that cursors and marks keep.

-- The current snapshot with this transaction listed as in progress, so that its later writes do not count as seen.
-- (PostgreSQL leaves a transaction out of its own snapshots.)
create or replace function penstock._current_snapshot() returns pg_snapshot
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
