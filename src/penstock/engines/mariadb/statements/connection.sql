-- name: session
-- The settings of a connection: names compare as bytes, times are those of UTC, and a value that does not fit is an error.
-- Defaults that an administrator may set for people at a console (limits of rows, safe updates, chained transactions)
-- are taken back.
set session sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO',
    time_zone = '+00:00', autocommit = 1, innodb_lock_wait_timeout = :busy_seconds,
    sql_select_limit = 18446744073709551615, sql_safe_updates = 0, completion_type = 0;
set session transaction isolation level read committed;

-- name: set_patience
-- How long a statement waits for a lock.
set session innodb_lock_wait_timeout = :seconds;

-- name: begin_write
-- Statements see what others committed before each of them.
start transaction;

-- name: lock_queue
-- Be the only writer of a queue until the transaction ends; its last position, and the end of its block.
select queue_id, last_position, block_end from penstock_queue where name = :name for update;

-- name: begin_time
-- The time of the transaction, once it has its lock, for the statements sent with this one.
set @penstock_now = timestampdiff(microsecond, '1970-01-01 00:00:00', utc_timestamp(6));
select @penstock_now;

-- name: begin_read
-- One snapshot for several statements.
set transaction isolation level repeatable read;
start transaction with consistent snapshot, read only;

-- name: now
-- The server's clock, in microseconds since 1970, whatever the time zone of the connection.
select timestampdiff(microsecond, '1970-01-01 00:00:00', utc_timestamp(6));

-- name: end_write
-- End the transaction.
commit;

-- name: undo
-- Roll back the transaction.
rollback;

-- name: savepoint
-- One call among several in a transaction.
savepoint penstock_call_:depth;

-- name: release
-- Make the call part of the transaction.
release savepoint penstock_call_:depth;

-- name: rollback_to
-- Roll back the call, not the transaction.
rollback to savepoint penstock_call_:depth;

-- name: block_of_queue
-- The last position of a queue, and the end of its block.
select queue_id, last_position, block_end from penstock_queue where queue_id = :queue_id for update;

-- name: set_last_position
-- The last position given out.
update penstock_queue set last_position = :last where queue_id = :queue_id;

-- name: new_block
-- A number that no other transaction gets, given out at once, whether this transaction commits or not.
insert into penstock_block (queue_id) values (:queue_id);
select last_insert_id();

-- name: begin_block
-- Continue the queue's positions in a new block.
update penstock_queue set last_position = :last, block_end = :block_end where queue_id = :queue_id;

-- name: commits
-- A number that changes with every commit that may make a message ready, and whether callers' transactions have sent
-- messages that are not in the log yet.
select coalesce(sum(last_position + last_entry + revision), 0) + count(*), exists (select 1 from penstock_arrival)
from penstock_queue;

-- name: has_schema
-- Whether the database has the tables of a store.
select count(*) from information_schema.tables where table_schema = database() and table_name = 'penstock_store';

-- name: server
-- The version and settings that an engine depends on.
select version(), database(), @@max_allowed_packet, @@innodb_flush_log_at_trx_commit, @@read_only,
    @@innodb_autoinc_lock_mode;

-- name: tables_of_other_engines
-- Tables of the store without transactions.
select table_name, engine from information_schema.tables
where table_schema = database() and table_name like 'penstock\_%' and table_type = 'BASE TABLE' and engine <> 'InnoDB';

-- name: probe_transaction
-- Fails if the connection has no open transaction: a savepoint without one is forgotten at once.
savepoint penstock_probe;
release savepoint penstock_probe;

-- name: current_database
-- The database of a connection.
select database();

-- name: isolation
-- The isolation level of a connection. MariaDB and MySQL have different names for it.
show session variables where variable_name in ('tx_isolation', 'transaction_isolation');

-- name: add_fact
-- Set one fact about the store, unless it is set.
insert ignore into penstock_store (name, value) values (:name, :value);

-- name: take_lock
-- Wait for a lock of the server that outlives transactions; 1 when it was taken.
select get_lock(concat(database(), '.', :name), :seconds);

-- name: release_lock
-- Release the lock.
select release_lock(concat(database(), '.', :name));

-- name: add_run
-- Extend the lane's last run, or start another.
update penstock_run set last_position = :last where lane_id = :lane_id and last_position = :first - 1;
insert into penstock_run (lane_id, last_position, first_position, `before`)
select lane_id, :last, :first, sent from penstock_lane_end where lane_id = :lane_id and row_count() = 0;
