-- name: sizes_of_lane
-- Payload sizes of the messages of a lane after a position, in order.
select length(log.payload)
from penstock_run as run
cross join penstock_log as log on log.position between max(run.first_position, :after + 1) and run.last_position
where run.lane_id = :lane_id and run.last_position > :after
order by run.last_position, log.position
limit :limit;
