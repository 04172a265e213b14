-- name: make_lane
-- Create a lane with its first message.
insert into penstock_lane (queue_id, priority, shard) values (:queue_id, :priority, :shard);
select last_insert_id();

-- name: find_made_ids
-- Which of the positions that some ids contain have a message of the queue with an id that follows from its position.
select straight_join log.position, log.created_at
from penstock_log as log force index (primary)
join penstock_lane as lane using (lane_id)
where log.position in (:values) and log.id is null and lane.queue_id = :queue_id;
