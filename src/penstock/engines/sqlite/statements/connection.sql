-- name: set_journal_mode
-- Readers continue while one connection writes.
pragma journal_mode = wal;

-- name: durable
-- A commit is on the disk when it returns.
pragma synchronous = full;

-- name: relaxed
-- A commit is flushed with the next durable one. For receives that a power cut may undo.
pragma synchronous = normal;

-- name: synchronous
-- The level in force: 2 is full, 1 is normal.
pragma synchronous;

-- name: cache_size
-- 64 MiB of pages per connection.
pragma cache_size = -65536;

-- name: trusted_schema
-- A file from an untrusted source must not run functions through its schema.
pragma trusted_schema = off;

-- name: cell_size_check
-- Detect damaged pages before using them.
pragma cell_size_check = on;

-- name: checkpoint_pages
-- Copy the write-ahead log back every 16 MiB: fewer, larger syncs.
pragma wal_autocheckpoint = 4000;

-- name: journal_size_limit
-- Truncate the write-ahead log after it has grown beyond 64 MiB.
pragma journal_size_limit = 67108864;

-- name: data_version
-- A number that changes when another connection has committed.
pragma data_version;

-- name: begin_write
-- Take the write lock at once: a read that turns into a write cannot be retried.
begin immediate;

-- name: begin_read
-- One snapshot for several statements.
begin;

-- name: take_write_lock
-- A write that changes nothing: the transaction waits for the write lock here instead of failing later.
update penstock_store set value = value where name = '';

-- name: commit
-- End the transaction.
commit;

-- name: rollback
-- Roll back the transaction.
rollback;

-- name: savepoint
-- One call among several in a transaction.
savepoint penstock_call;

-- name: release
-- Make the call part of the transaction.
release penstock_call;

-- name: rollback_to
-- Roll back the call, not the transaction.
rollback to penstock_call;

-- name: has_schema
-- Whether the file has the tables of a store.
select count(*) from sqlite_schema where type = 'table' and name = 'penstock_store';

-- name: quick_check
-- The first damage found, or ok.
pragma quick_check (1);

-- name: free_pages
-- Number of unused pages.
pragma freelist_count;

-- name: all_pages
-- Number of pages of the file.
pragma page_count;

-- name: lengthen_run
-- Extend the lane's last run.
update penstock_run set last_position = ? where lane_id = ? and last_position = ?;

-- name: begin_run
-- Start a run of the lane.
insert into penstock_run (lane_id, last_position, first_position, before)
select lane_id, :last, :first, sent from penstock_lane_end where lane_id = :lane_id;
