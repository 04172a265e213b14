-- name: ready_retries
-- Due retries of a group after a place, in receive order.
select tracked.priority, tracked.position, log.created_at, log.id, tracked.attempt, tracked.reason
from penstock_tracked as tracked
join penstock_log as log using (position)
where tracked.group_id = :group_id and tracked.state = 'ready'
    and (tracked.priority, tracked.position) > (:priority, :position)
order by tracked.priority, tracked.position
limit :limit;

-- name: delayed_messages
-- Delayed messages after a place, by due time.
select held.available_at, held.held_id, held.created_at, held.id, batch.name
from penstock_held as held
left join penstock_batch as batch on batch.batch_id = held.batch_id
where held.queue_id = :queue_id and held.waiting = 0 and (held.available_at, held.held_id) > (:due_at, :number)
order by held.available_at, held.held_id
limit :limit;

-- name: delayed_retries
-- Retries that are not due yet after a place, by due time.
select tracked.until_at, tracked.position, log.created_at, log.id, tracked.attempt, tracked.reason
from penstock_tracked as tracked
join penstock_log as log using (position)
where tracked.group_id = :group_id and tracked.state = 'held' and (tracked.until_at, tracked.position) > (:due_at, :number)
order by tracked.until_at, tracked.position
limit :limit;

-- name: unstarted_batches
-- Batches that have not started and may have members in a queue, from a number on.
select batch_id, name from penstock_batch
where queue_id = :queue_id and state = 'open' and batch_id >= :batch_id
union all
select batch.batch_id, batch.name
from penstock_batch_queue as other
join penstock_batch as batch using (batch_id)
where other.queue_id = :queue_id and batch.state = 'open' and batch.batch_id >= :batch_id
order by 1;

-- name: held_by_batch
-- Messages of a queue that wait for the start of their batch, after a number.
select held_id, created_at, id from penstock_held
where batch_id = :batch_id and queue_id = :queue_id and waiting = 1 and held_id > :number
order by held_id
limit :limit;

-- name: members_in_log
-- Members of a batch that have reached the log, after a position.
select log.position, log.created_at, log.id, queue.name
from penstock_log as log
join penstock_lane as lane using (lane_id)
join penstock_queue as queue using (queue_id)
where log.batch_id = :batch_id and log.position > :number and log.position > queue.trimmed_position
order by log.position
limit :limit;

-- name: members_held
-- Members of a batch that are held, after a number.
select held.held_id, held.created_at, held.id, queue.name
from penstock_held as held
join penstock_queue as queue using (queue_id)
where held.batch_id = :batch_id and held.held_id > :number
order by held.held_id
limit :limit;
