-- name: newest_batch
-- The newest batch of a name.
select batch_id, queue_id, name, state, total, cancelled, end_message, abort_message
from penstock_batch
where queue_id = :queue_id and name = :name
order by batch_id desc
limit 1
for update;

-- name: next_batch
-- The first batch of a name after a number.
select batch_id, queue_id, name, state, total, cancelled, end_message, abort_message
from penstock_batch
where queue_id = :queue_id and name = :name and batch_id > :after
order by batch_id
limit 1
for update;

-- name: find_batch
-- One batch by number.
select batch_id, queue_id, name, state, total, cancelled, end_message, abort_message
from penstock_batch
where batch_id = :batch_id
for update;

-- name: all_batches
-- The batches of a queue, newest first.
select batch_id, queue_id, name, state, total, cancelled, end_message, abort_message
from penstock_batch
where queue_id = :queue_id
order by batch_id desc;

-- name: set_batch_state
-- open -> running or cancelling, and their successors.
update penstock_batch set state = :state, ended_at = :ended_at where batch_id = :batch_id;

-- name: count_remaining_members
-- Number of members that have not ended, in the log and held.
select (select count(*) from penstock_member where batch_id = :batch_id)
    + (select count(*) from penstock_held where batch_id = :batch_id);

-- name: add_batch_queue
-- Record that the batch has members in another queue than its own.
insert or ignore into penstock_batch_queue (batch_id, queue_id) values (:batch_id, :queue_id);

-- name: batch_queues
-- The queue of a batch and the other queues in which it has members.
select queue_id, name, policy, held, trimmed_position, created_at, primary_group_id
from penstock_queue
where queue_id = :queue_id
    or queue_id in (select other.queue_id from penstock_batch_queue as other where other.batch_id = :batch_id)
order by queue_id
for update;

-- name: is_message_cancelled
-- Whether the batch of a message was cancelled. A redriven message is no longer a member.
select batch.state in ('cancelling', 'cancelled')
from penstock_log as log
left join penstock_tracked as tracked on tracked.group_id = :group_id and tracked.position = log.position
join penstock_batch as batch
    on batch.batch_id = case when tracked.position is null then log.batch_id else tracked.batch_id end
where log.position = :position;
