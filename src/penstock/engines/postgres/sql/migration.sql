-- name: lock
-- One migration at a time.
select pg_advisory_xact_lock(hashtextextended('penstock migrate', 0));

-- name: prepare
-- Functions may name others that come later.
set local check_function_bodies = off;

-- name: begin_store
-- The facts about a new store, and its first segment.
with made as (
    insert into penstock.store (schema_version, salt, epoch, system_identifier)
    select %s, %s, %s, system_identifier from pg_control_system()
    returning only_row
)
insert into penstock.segment (segment, opened_at, sealed)
select segment, (extract(epoch from clock_timestamp()) * 1000000)::bigint, case when segment <> 1 then '0'::xid8 end
from generate_series(0, 4) as segment, made;

-- name: set_version
-- The steps taken so far.
update penstock.store set schema_version = %s;

-- name: set_digest
-- Which functions the store has.
update penstock.store set functions_digest = %s;

-- name: rebase
-- After a restore into another cluster: give transaction numbers the meaning they had.
select penstock._rebase();
