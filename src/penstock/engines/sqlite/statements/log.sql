-- name: make_lane
-- Create a lane with its first message.
insert into penstock_lane (queue_id, priority, shard) values (:queue_id, :priority, :shard)
returning lane_id;

-- name: find_made_ids
-- Which of the positions that some ids contain have a message of the queue with an id that follows from its position.
select log.position, log.created_at
from carray(:values) as wanted
cross join penstock_log as log on log.position = wanted.value
join penstock_lane as lane using (lane_id)
where log.id is null and lane.queue_id = :queue_id;
