-- name: journal_mode
-- Readers go on while one writer writes.
pragma journal_mode = wal;

-- name: durable
-- A commit is on the disk when it returns.
pragma synchronous = full;

-- name: relaxed
-- A commit is on the disk with the next durable one. For receives that a power cut may undo.
pragma synchronous = normal;

-- name: synchronous
-- What is in force: 2 is full, 1 is normal.
pragma synchronous;

-- name: cache_size
-- 64 MiB of pages per connection.
pragma cache_size = -65536;

-- name: trusted_schema
-- A file made by somebody else must not run functions through its schema.
pragma trusted_schema = off;

-- name: cell_size_check
-- Notice damaged pages before using them.
pragma cell_size_check = on;

-- name: checkpoint_pages
-- Copy the write-ahead log back every 16 MiB: fewer, larger syncs.
pragma wal_autocheckpoint = 4000;

-- name: journal_size_limit
-- Give disk back when the write-ahead log has grown beyond 64 MiB.
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
-- Changes nothing, but as a write: a transaction that begins with it waits for the lock instead of failing later.
update penstock_store set value = value where name = '';

-- name: commit
-- End the transaction.
commit;

-- name: rollback
-- Undo the transaction.
rollback;

-- name: savepoint
-- One call among several in a transaction.
savepoint penstock_call;

-- name: release
-- The call is part of the transaction now.
release penstock_call;

-- name: rollback_to
-- Undo the call, not the transaction.
rollback to penstock_call;

-- name: has_schema
-- Whether the file has the tables of a store.
select count(*) from sqlite_schema where type = 'table' and name = 'penstock_store';

-- name: fact
-- One fact about the store.
select value from penstock_store where name = :name;

-- name: set_fact
-- Write down one fact about the store.
insert into penstock_store (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value;

-- name: last_position
-- The last position given out. It is never given out again, though its message may be gone.
select max(
    (select value from penstock_store where name = 'last_position'),
    coalesce((select max(position) from penstock_log), 0)
);

-- name: keep_position
-- Before messages are removed, the last of them perhaps.
update penstock_store
set value = max(value, coalesce((select max(position) from penstock_log), 0))
where name = 'last_position';

-- name: last_entry
-- The number of the last audit entry. It is never given out again, though the entry may be gone.
select max(value, (select coalesce(max(entry_id), 0) from penstock_audit)) from penstock_store where name = 'last_entry';

-- name: keep_entry
-- Before audit entries are removed, the last of them perhaps.
update penstock_store
set value = max(value, (select coalesce(max(entry_id), 0) from penstock_audit))
where name = 'last_entry';

-- name: quick_check
-- The first damage found, or ok.
pragma quick_check (1);

-- name: free_pages
-- Pages that nothing uses.
pragma freelist_count;

-- name: all_pages
-- Pages of the file.
pragma page_count;
