-- name: abandon_batches
-- Cancel the batches of a queue that have members in other queues; no end or abort message is sent for them.
update penstock_batch set state = 'cancelling', end_message = null, abort_message = null
where queue_id = :queue_id and state in ('open', 'running', 'cancelling')
    and exists (select 1 from penstock_batch_queue as other where other.batch_id = penstock_batch.batch_id);
select batch_id, queue_id, name, state, total, cancelled, end_message, abort_message
from penstock_batch
where queue_id = :queue_id and state = 'cancelling'
    and exists (select 1 from penstock_batch_queue as other where other.batch_id = penstock_batch.batch_id);
