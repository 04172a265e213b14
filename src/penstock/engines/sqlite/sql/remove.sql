-- name: leases_between
-- Leases of a group that reach into a range of positions.
select token, first_position, last_position, group_id, lane_id, consumer, ends_at
from penstock_lease
where group_id = :group_id and last_position >= :first and first_position <= :last
order by first_position;

-- name: tracked_between
-- Messages that a group looks after one by one, in a range of positions.
select position, attempt from penstock_tracked
where group_id = :group_id and position between :first and :last
order by position;

-- name: skipped_between
-- Messages of a lane that ended in a group before its cursor came to them.
select skip.position
from penstock_skip as skip
join penstock_log as log using (position)
where skip.group_id = :group_id and skip.position between :first and :last and log.lane_id = :lane_id
order by skip.position;

-- name: unskip_at
-- Nothing has to be passed over where a message is gone.
delete from penstock_skip
where position = :position and group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: unbury_at
-- Dead letters of a message that is gone.
delete from penstock_dead_letter
where position = :position and group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: lane_at
-- The lane of a message, and when it was sent.
select lane_id, created_at from penstock_log where position = :position;

-- name: take_run
-- The stretch of a lane that holds a position: taken out, to be put back without it.
delete from penstock_run
where lane_id = :lane_id and first_position <= :position and last_position = (
    select min(next.last_position) from penstock_run as next
    where next.lane_id = :lane_id and next.last_position >= :position
)
returning first_position, last_position, before;

-- name: put_run
-- A stretch that is left.
insert into penstock_run (lane_id, last_position, first_position, before) values (?, ?, ?, ?);

-- name: count_down_runs
-- One message less before each stretch that comes later.
update penstock_run set before = before - 1 where lane_id = :lane_id and last_position > :position;

-- name: count_down_cursors
-- One message less that a group has passed.
update penstock_cursor set passed = passed - 1 where lane_id = :lane_id and position >= :position;

-- name: remove_message
-- The message itself.
delete from penstock_log where position = :position;

-- name: stretches
-- The stretches of a queue that can be read, the newest first.
select run.first_position, run.last_position
from penstock_lane as lane
join penstock_run as run using (lane_id)
where lane.queue_id = :queue_id and lane.priority >= 0
order by run.last_position desc;
