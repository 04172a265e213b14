-- name: readable_lanes
-- The lanes of a queue that can be read.
select lane_id from penstock_lane where queue_id = :queue_id and priority >= 0;

-- name: read_lanes
-- All lanes of a queue, and up to where what is in them may have ended in the group.
select lane.lane_id,
    case when lane.priority < 0 then :before - 1 else min(:before - 1, coalesce(cursor.position, :trimmed_position)) end
from penstock_lane as lane
left join penstock_cursor as cursor on cursor.group_id = :group_id and cursor.lane_id = lane.lane_id
where lane.queue_id = :queue_id;

-- name: runs_after
-- Runs of a lane with something between two positions, in order.
select first_position, last_position
from penstock_run
where lane_id = :lane_id and last_position > :after and first_position <= :upto
order by last_position
limit :limit;

-- name: run_over
-- The run that goes on over a position, or ends there.
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

-- name: skipped_before
-- Messages that ended in the group before its cursor came to them, the last one first.
select position
from penstock_skip
where group_id = :group_id and position < :before and position > :trimmed_position
order by position desc
limit :limit;
