-- name: delete_staged
-- Delete the messages staged for the queue.
delete from penstock_staged
where staged_id in (
    select staged.staged_id
    from penstock_stage as stage
    join penstock_staged as staged on staged.staged_id between stage.first_id and stage.last_id
    where stage.queue_id = :queue_id
);

-- name: delete_trail
-- Delete the recorded end of the queue's audit.
delete from penstock_trail where queue_id = :queue_id;

-- name: flush_log
-- Remove the queue's messages from the log.
delete from penstock_log
where position in (
    select log.position
    from penstock_lane as lane
    join penstock_run as run using (lane_id)
    join penstock_log as log on log.position between run.first_position and run.last_position
    where lane.queue_id = :queue_id
);

-- name: flush_dead_log
-- Remove messages that only a dead letter keeps.
delete from penstock_log
where position in (
    select dead.position
    from penstock_dead_letter as dead
    join penstock_group as reader using (group_id)
    where reader.queue_id = :queue_id
);

-- name: flush_runs
-- Remove the runs of the queue.
delete from penstock_run where lane_id in (select lane_id from penstock_lane where queue_id = :queue_id);

-- name: flush_cursors
-- Remove the cursors of the queue's lanes.
delete from penstock_cursor where lane_id in (select lane_id from penstock_lane where queue_id = :queue_id);

-- name: flush_leases
-- End the queue's leases.
delete from penstock_lease where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: flush_tracked
-- Remove the queue's tracked messages.
delete from penstock_tracked where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: flush_skips
-- Remove the queue's skips.
delete from penstock_skip where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: flush_dead_letters
-- Remove the queue's dead letters.
delete from penstock_dead_letter where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: flush_visitors
-- Remove the members that batches of other queues have here.
delete from penstock_member
where batch_id in (select other.batch_id from penstock_batch_queue as other where other.queue_id = :queue_id)
    and (
        select lane.queue_id from penstock_log as log join penstock_lane as lane using (lane_id)
        where log.position = penstock_member.position
    ) = :queue_id;

-- name: flush_batch_queues
-- Remove the links between batches and this queue, and those of its own batches.
delete from penstock_batch_queue
where queue_id = :queue_id or batch_id in (select batch_id from penstock_batch where queue_id = :queue_id);

-- name: flush_members
-- Remove the members of the queue's batches.
delete from penstock_member where batch_id in (select batch_id from penstock_batch where queue_id = :queue_id);
