-- name: begin
-- Begin a transaction, at an isolation level that does not depend on settings of the server.
begin isolation level read committed;

-- name: commit
-- End the transaction.
commit;

-- name: rollback
-- Undo the transaction.
rollback;

-- name: savepoint
-- Begin one call of a transaction.
savepoint penstock_call;

-- name: release
-- Keep the call.
release savepoint penstock_call;

-- name: rollback_to
-- Undo the call but not the transaction.
rollback to savepoint penstock_call;

-- name: inject
-- Set the clock and the random number of a test for the next call.
select set_config('penstock.now', %s, false), set_config('penstock.random', %s, false);

-- name: server_version
-- The version of the server, and whether it is a standby.
select current_setting('server_version_num')::integer, pg_is_in_recovery();

-- name: session
-- The process id of the session.
select pg_backend_pid();

-- name: has_schema
-- Whether the database has the tables of a store.
select to_regclass('penstock.store') is not null;

-- name: facts
-- Facts about the store, and whether its transaction numbers are those of this server.
select schema_version, functions_digest, salt, epoch,
    system_identifier = (select system_identifier from pg_control_system())
from penstock.store;

-- name: listen
-- Listen for commits that make messages ready.
listen penstock;

-- name: listen_for_echo
-- Listen on the channel of the test notification.
listen penstock_echo;

-- name: echo
-- Send the test notification.
select pg_notify('penstock_echo', %s);

-- name: stop_listening
-- Stop listening.
unlisten *;

-- name: say_listening
-- Take the lock of listeners: senders notify only while it is held (penstock._somebody_listens). False while a sender
-- tests it.
select pg_try_advisory_lock_shared(7305793389475492353);

-- name: begin_implicitly
-- Begin the transaction of a connection without autocommit.
select 1;
