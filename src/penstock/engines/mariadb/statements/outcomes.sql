-- name: leave_batch
-- Remove the members of a range from their batches.
select batch_id from penstock_member where position between :first and :last;
delete from penstock_member where position between :first and :last;
