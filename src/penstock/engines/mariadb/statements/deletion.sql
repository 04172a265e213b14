-- name: delete_staged
-- Delete the messages staged for the queue.
delete staged from penstock_staged as staged
join penstock_stage as stage on staged.staged_id between stage.first_id and stage.last_id
where stage.queue_id = :queue_id;

-- name: delete_trail
-- Nothing: the end of a queue's audit is found by its key.
do 0;

-- name: flush_log
-- Remove the queue's messages from the log.
delete log from penstock_lane as lane
straight_join penstock_log as log force index (penstock_log_lane) on log.lane_id = lane.lane_id
where lane.queue_id = :queue_id;

-- name: flush_dead_log
-- Remove messages that only a dead letter keeps.
delete log from penstock_group as reader
straight_join penstock_dead_letter as dead force index (primary) on dead.group_id = reader.group_id
straight_join penstock_log as log on log.position = dead.position
where reader.queue_id = :queue_id;

-- name: flush_runs
-- Remove the runs of the queue.
delete run from penstock_lane as lane
straight_join penstock_run as run force index (primary) on run.lane_id = lane.lane_id
where lane.queue_id = :queue_id;

-- name: flush_cursors
-- Remove the cursors of the queue's lanes.
delete place from penstock_lane as lane
straight_join penstock_cursor as place force index (penstock_cursor_lane) on place.lane_id = lane.lane_id
where lane.queue_id = :queue_id;

-- name: flush_leases
-- End the queue's leases.
delete lease from penstock_group as reader
straight_join penstock_lease as lease force index (primary) on lease.group_id = reader.group_id
where reader.queue_id = :queue_id;

-- name: flush_tracked
-- Remove the queue's tracked messages.
delete tracked from penstock_group as reader
straight_join penstock_tracked as tracked force index (primary) on tracked.group_id = reader.group_id
where reader.queue_id = :queue_id;

-- name: flush_skips
-- Remove the queue's skips.
delete skip from penstock_group as reader
straight_join penstock_skip as skip force index (primary) on skip.group_id = reader.group_id
where reader.queue_id = :queue_id;

-- name: flush_dead_letters
-- Remove the queue's dead letters.
delete dead from penstock_group as reader
straight_join penstock_dead_letter as dead force index (primary) on dead.group_id = reader.group_id
where reader.queue_id = :queue_id;

-- name: flush_visitors
-- Remove the members that batches of other queues have here.
delete member from penstock_batch_queue as other
straight_join penstock_member as member force index (penstock_member_batch) on member.batch_id = other.batch_id
where other.queue_id = :queue_id
    and (
        select lane.queue_id from penstock_log as log join penstock_lane as lane using (lane_id)
        where log.position = member.position
    ) = :queue_id;

-- name: flush_batch_queues
-- Remove the links between batches and this queue, and those of its own batches.
delete gone from penstock_batch_queue as gone force index (penstock_batch_queue_queue) where gone.queue_id = :queue_id;
delete other from penstock_batch as batch
straight_join penstock_batch_queue as other force index (primary) on other.batch_id = batch.batch_id
where batch.queue_id = :queue_id;

-- name: flush_members
-- Remove the members of the queue's batches.
delete member from penstock_batch as batch
straight_join penstock_member as member force index (penstock_member_batch) on member.batch_id = batch.batch_id
where batch.queue_id = :queue_id;
