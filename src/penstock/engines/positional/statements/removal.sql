-- name: leases_in_range
-- Leases of a group that overlap a range of positions.
select token, first_position, last_position, group_id, lane_id, consumer, ends_at
from penstock_lease
where group_id = :group_id and last_position >= :first and first_position <= :last
order by first_position;

-- name: tracked_in_range
-- Tracked messages of a group in a range of positions.
select position, attempt from penstock_tracked
where group_id = :group_id and position between :first and :last
order by position;

-- name: forget_tracked_in_range
-- Stop tracking the messages of a range.
delete from penstock_tracked where group_id = :group_id and position between :first and :last;

-- name: skipped_in_range
-- Messages of a lane that ended in a group before its cursor reached them.
select skip.position
from penstock_skip as skip
join penstock_log as log using (position)
where skip.group_id = :group_id and skip.position between :first and :last and log.lane_id = :lane_id
order by skip.position;

-- name: remove_skips_at
-- Remove the skips of a removed message.
delete from penstock_skip
where position = :position and group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: remove_dead_letters_at
-- Remove the dead letters of a removed message.
delete from penstock_dead_letter
where position = :position and group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: lane_at
-- The lane of a message, and when it was sent.
select lane_id, created_at from penstock_log where position = :position;

-- name: run_around
-- The run that contains a position.
select first_position, last_position, "before"
from penstock_run
where lane_id = :lane_id and first_position <= :position and last_position = (
    select min(next.last_position) from penstock_run as next
    where next.lane_id = :lane_id and next.last_position >= :position
);

-- name: remove_run
-- Remove a run.
delete from penstock_run where lane_id = ? and last_position = ?;

-- name: put_run
-- Insert a run.
insert into penstock_run (lane_id, last_position, first_position, "before") values (?, ?, ?, ?);

-- name: count_down_runs
-- Decrease the counts of later runs by one.
update penstock_run set "before" = "before" - 1 where lane_id = :lane_id and last_position > :position;

-- name: count_down_cursors
-- Decrease the counts of cursors by one.
update penstock_cursor set passed = passed - 1 where lane_id = :lane_id and position >= :position;

-- name: remove_message
-- Delete the message.
delete from penstock_log where position = :position;

-- name: runs_from_end
-- Runs of the readable lanes of a queue, newest first.
select run.first_position, run.last_position
from penstock_lane as lane
join penstock_run as run using (lane_id)
where lane.queue_id = :queue_id and lane.priority >= 0
order by run.last_position desc;
