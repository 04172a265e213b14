-- name: leave_batch
-- Remove the members of a range from their batches.
delete from penstock_member where position between :first and :last
returning batch_id;
