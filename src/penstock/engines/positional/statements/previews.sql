-- name: count_skipped
-- Number of messages of a lane between two positions that the group skips anyway.
select count(*)
from penstock_skip as skip
join penstock_log as log using (position)
where skip.group_id = :group_id and skip.position > :after and skip.position <= :upto and log.lane_id = :lane_id;

-- name: count_live
-- Number of messages of a lane between two positions that the group has leased or retries.
select (
        select count(*) from penstock_tracked
        where group_id = :group_id and position > :after and position <= :upto and lane_id = :lane_id
    ) + (
        select coalesce(sum(least(last_position, :upto) - greatest(first_position, :after + 1) + 1), 0) from penstock_lease
        where group_id = :group_id and last_position > :after and first_position <= :upto and lane_id = :lane_id
    );

-- name: count_readable
-- Number of messages of a queue that can be received, and the same with those that ended while held.
select coalesce(sum(iif(priority >= 0, sent - trimmed, 0)), 0), coalesce(sum(sent - trimmed), 0)
from penstock_lane_end
where queue_id = :queue_id;

-- name: count_kept
-- Number of dead letters of a group that keep a message of the log.
select count(*) from penstock_dead_letter where group_id = :group_id and position > :after;

-- name: count_old_dead_letters
-- Number of dead letters of a group from before a time.
select count(*) from penstock_dead_letter where group_id = :group_id and died_at <= :before;
