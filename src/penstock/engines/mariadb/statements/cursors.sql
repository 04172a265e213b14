-- name: created_at
-- When the next message of the queue that was never held was sent: these are ordered by time, except for clock jumps.
select created_at from penstock_log
where position = (
    select min((
        select log.position from penstock_log as log
        where log.lane_id = lane.lane_id and log.position >= :position and log.available_at is null
        order by log.position
        limit 1
    ))
    from penstock_lane as lane
    where lane.queue_id = :queue_id
);
