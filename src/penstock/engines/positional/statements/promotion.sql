-- name: due_held
-- Held messages that are due, earliest first.
select held_id
from penstock_held
where queue_id = :queue_id and waiting = 0 and available_at <= :now
order by available_at, held_id
limit :limit;

-- name: due_members
-- Members of a batch in a queue that are due themselves.
select held_id
from penstock_held
where batch_id = :batch_id and queue_id = :queue_id and available_at <= :now
order by held_id;

-- name: make_available
-- Members become available when the batch starts.
update penstock_held set available_at = greatest(:now, created_at + 1)
where batch_id = :batch_id and queue_id = :queue_id and available_at <= :now;

-- name: place_address
-- Record the position of the address's message.
update penstock_address set position = :position
where queue_id = :queue_id and address = :address and id = :id;

-- name: due_tracked
-- Retries that are due, earliest first.
select position, attempt
from penstock_tracked
where group_id = :group_id and state = 'held' and until_at <= :now
order by until_at, position
limit :limit;

-- name: make_retry_ready
-- held -> ready.
update penstock_tracked set state = 'ready' where group_id = :group_id and position = :position;

-- name: count_held
-- Update the number of held messages.
update penstock_queue set held = held + :change where queue_id = :queue_id;
