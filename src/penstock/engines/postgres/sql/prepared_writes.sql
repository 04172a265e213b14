-- A statement that only calls a function has the name of the function, where it is described.

select penstock.begin_prepared_write(%s, %s, %s);
select penstock.prepare(%s, %s::integer[]);
select * from penstock.reserve_positions(%s, %s::integer, %s::integer, %s::integer);
select penstock.finish_prepared_write(%s, %s::bigint);
select penstock.withdraw_prepared_write(%s);
select * from penstock.decided_prepared_writes(%s, %s);
select penstock.forget_prepared_writes(%s::text[]);

-- name: wait_for_rows
-- The transaction may idle while rows are produced; text is in UTF-8, as in Arrow.
set local idle_in_transaction_session_timeout = 0; set local client_encoding = 'UTF8';

-- name: reserve
-- Reserve one of the server's prepared transactions, if one is free; and the number of this transaction.
select penstock.reserve_prepared_write(%s), pg_current_xact_id()::text;

-- name: copy
-- Copy messages into the log.
copy penstock.log ({columns}) from stdin (format binary);

-- name: prepare_transaction
-- Prepare the transaction: any session may end it from now on.
prepare transaction '{name}';

-- name: commit
-- Commit the messages of a prepared write.
commit prepared '{name}';

-- name: rollback
-- Roll back the messages of a prepared write.
rollback prepared '{name}';
