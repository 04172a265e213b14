-- name: begin
-- Several calls in one transaction. Its isolation must not depend on how the server is set up.
begin isolation level read committed;

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
release savepoint penstock_call;

-- name: rollback_to
-- Undo the call, not the transaction.
rollback to savepoint penstock_call;

-- name: inject
-- Time and chance of a test, for the next call.
select set_config('penstock.now', %s, false), set_config('penstock.random', %s, false);

-- name: server_version
-- What the server is, and whether it takes writes.
select current_setting('server_version_num')::integer, pg_is_in_recovery();

-- name: session
-- The number of the session, as the server knows it.
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
-- Hear of commits that make something ready.
listen penstock;

-- name: listen_for_echo
-- Hear oneself, to find out whether notifications get through.
listen penstock_echo;

-- name: echo
-- What the listener should hear.
select pg_notify('penstock_echo', %s);

-- name: stop_listening
-- Hear nothing any more.
unlisten *;

-- name: say_listening
-- Senders notify only while somebody holds this lock: see penstock._somebody_listens. False while a sender is looking.
select pg_try_advisory_lock_shared(7305793389475492353);

-- name: begin_implicitly
-- A statement that begins the transaction of a connection which begins them by itself.
select 1;
