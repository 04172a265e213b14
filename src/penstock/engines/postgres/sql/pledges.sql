-- name: begin_pledge
-- Write down that a part is to be written by a transaction of its own: its name.
select penstock.begin_pledge(%s, %s, %s);

-- name: wait_for_rows
-- Rows come as fast as somebody makes them, so the transaction may wait for them; texts come as Arrow has them.
set local idle_in_transaction_session_timeout = 0; set local client_encoding = 'UTF8';

-- name: take_place
-- Whether the server can keep another transaction, and the number of this one.
select penstock.take_place(%s), pg_current_xact_id()::text;

-- name: prepare_lane
-- Make the lanes of a priority.
select penstock.prepare(%s, %s::integer[]);

-- name: take_positions
-- Where messages go.
select created_at, lane_id, first, seqs from penstock.take_positions(%s, %s::integer, %s::integer, %s::integer);

-- name: copy
-- Messages into the log.
copy penstock.log ({columns}) from stdin (format binary);

-- name: pledge
-- The transaction can be kept or dropped by anybody from now on, whatever dies.
prepare transaction '{name}';

-- name: end_pledge
-- The part is whole.
select penstock.end_pledge(%s, %s::bigint);

-- name: withdraw_pledge
-- A pledge that is not made after all.
select penstock.withdraw_pledge(%s);

-- name: decided_pledges
-- What has to be done with pledges.
select name, fate from penstock.decided_pledges(%s, %s);

-- name: keep
-- What the transaction has sent is sent.
commit prepared '{name}';

-- name: drop
-- What the transaction has sent was never sent.
rollback prepared '{name}';

-- name: forget_pledges
-- Pledges that have come to their end.
select penstock.forget_pledges(%s::text[]);
