-- name: begin_write
-- Register a part that a transaction of its own is to write: the name of the transaction.
select penstock.begin_prepared_write(%s, %s, %s);

-- name: wait_for_rows
-- Rows come as fast as somebody makes them, so the transaction may wait for them; texts come as Arrow has them.
set local idle_in_transaction_session_timeout = 0; set local client_encoding = 'UTF8';

-- name: reserve
-- Reserve one of the server's prepared transactions, if one is free; and the number of this transaction.
select penstock.reserve_prepared_write(%s), pg_current_xact_id()::text;

-- name: prepare_lane
-- Make the lanes of a priority.
select penstock.prepare(%s, %s::integer[]);

-- name: reserve_positions
-- Reserve positions in a lane.
select created_at, lane_id, first, positions from penstock.reserve_positions(%s, %s::integer, %s::integer, %s::integer);

-- name: copy
-- Messages into the log.
copy penstock.log ({columns}) from stdin (format binary);

-- name: prepare
-- Hand the transaction to the server: any session may end it from now on.
prepare transaction '{name}';

-- name: finish_write
-- The part is whole.
select penstock.finish_prepared_write(%s, %s::bigint);

-- name: withdraw_write
-- Unregister a write that was not prepared.
select penstock.withdraw_prepared_write(%s);

-- name: decided_writes
-- Prepared writes that were decided on, and how.
select name, fate from penstock.decided_prepared_writes(%s, %s);

-- name: commit
-- Commit the messages of a prepared write.
commit prepared '{name}';

-- name: rollback
-- Roll the messages of a prepared write back.
rollback prepared '{name}';

-- name: forget_writes
-- Remove prepared writes that have ended.
select penstock.forget_prepared_writes(%s::text[]);
