-- name: find_lane
-- The lane of a priority and a shard.
select lane_id from penstock_lane where queue_id = :queue_id and priority = :priority and shard = :shard;

-- name: make_lane
-- Create a lane with its first message.
insert into penstock_lane (queue_id, priority, shard) values (:queue_id, :priority, :shard);
select last_insert_id();

-- name: append_message
-- (new) or held -> ready.
insert into penstock_log (
    position, lane_id, created_at, id, content_type, headers, expires_at, deadline_at, address, `key`, batch_id,
    created_by, available_at, payload
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: lengthen_run
-- Extend the lane's last run.
update penstock_run set last_position = ? where lane_id = ? and last_position = ?;

-- name: begin_run
-- Start a run of the lane.
insert into penstock_run (lane_id, last_position, first_position, `before`)
select lane_id, :last, :first, sent from penstock_lane_end where lane_id = :lane_id;

-- name: mark_lane_checked
-- Mark the lane as having messages that need checks.
update penstock_lane set careful = 1 where lane_id = :lane_id and careful = 0;

-- name: put_identity
-- Record a chosen id.
insert into penstock_identity (queue_id, id, position, held_id) values (:queue_id, :id, :position, :held_id)
on duplicate key update position = values(position), held_id = values(held_id);

-- name: find_identity
-- Where the message with a chosen id is.
select position, held_id from penstock_identity where queue_id = :queue_id and id = :id;

-- name: find_made_id
-- The message at the position that an id contains, if it belongs to the queue.
select log.created_at
from penstock_log as log
join penstock_lane as lane using (lane_id)
where log.position = :position and log.id is null and lane.queue_id = :queue_id;
