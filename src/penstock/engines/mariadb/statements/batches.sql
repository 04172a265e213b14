-- name: make_batch
-- Create an open batch. Its number is greater than every number used before, even of batches that were removed.
insert into penstock_batch (batch_id, queue_id, name, state, created_at)
select if(:after > coalesce(max(batch_id), 0), :after + 1, null), :queue_id, :name, 'open', :now from penstock_batch;
select batch_id, queue_id, name, state, total, cancelled, end_message, abort_message
from penstock_batch
where queue_id = :queue_id and name = :name
order by batch_id desc
limit 1;
