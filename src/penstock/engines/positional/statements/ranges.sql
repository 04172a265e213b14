-- name: readable_lanes
-- The lanes of a queue that groups read.
select lane_id from penstock_lane where queue_id = :queue_id and priority >= 0;

-- name: runs_after
-- Runs of a lane with something between two positions, in order.
select first_position, last_position
from penstock_run
where lane_id = :lane_id and last_position > :after and first_position <= :upto
order by last_position
limit :limit;

-- name: run_over
-- The run that contains a position.
select first_position, last_position
from penstock_run
where lane_id = :lane_id and last_position = (
        select min(next.last_position) from penstock_run as next
        where next.lane_id = :lane_id and next.last_position >= :upto
    )
    and first_position <= :upto;

-- name: runs_before
-- Runs that end before a position, the last one first.
select first_position, last_position
from penstock_run
where lane_id = :lane_id and last_position > :after and last_position < :upto
order by last_position desc
limit :limit;
