-- name: make_batch
-- Create an open batch. Its number is greater than every number used before, even of batches that were removed.
insert into penstock_batch (batch_id, queue_id, name, state, created_at)
select max(coalesce(max(batch_id), 0), :after) + 1, :queue_id, :name, 'open', :now from penstock_batch
returning batch_id, queue_id, name, state, total, cancelled, end_message, abort_message;
