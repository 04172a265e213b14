-- name: last_position
-- The last position given out to a queue, or to any.
select coalesce(max(last_position), 0) from penstock_queue where :queue_id is null or queue_id = :queue_id;

-- name: keep_position
-- Nothing: the queue's row has its last position.
do 0;

-- name: last_entry
-- The number of the last audit entry of a queue, or of any.
select coalesce(max(last_entry), 0) from penstock_queue where :queue_id is null or queue_id = :queue_id;

-- name: keep_entry
-- Nothing: the queue's row has its last entry.
do 0;
