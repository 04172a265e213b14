-- name: flush_counts
-- Number of messages of the queue.
select (select coalesce(sum(sent - trimmed), 0) from penstock_lane_end where queue_id = :queue_id)
    + (select held from penstock_queue where queue_id = :queue_id);

-- name: batches_of_other_queues
-- Batches of other queues, and how many members of each have not ended in a queue.
select other.batch_id,
    (
        select count(*) from penstock_member as member
        where member.batch_id = other.batch_id and (
            select lane.queue_id from penstock_log as log join penstock_lane as lane using (lane_id)
            where log.position = member.position
        ) = :queue_id
    )
    + (
        select count(*) from penstock_held as held
        where held.batch_id = other.batch_id and held.queue_id = :queue_id
    )
from penstock_batch_queue as other
where other.queue_id = :queue_id
order by other.batch_id;

-- name: schedules_of_queue
-- Schedules that send to the queue.
select name from penstock_schedule where queue = :name order by name;

-- name: consumers_of_queue
-- Consumers that are registered in the queue.
select consumer.name
from penstock_consumer as consumer
join penstock_group as reader using (group_id)
where reader.queue_id = :queue_id
order by consumer.name;

-- name: delete_staged
-- Delete the messages staged for the queue.
delete from penstock_staged
where staged_id in (
    select staged.staged_id
    from penstock_stage as stage
    join penstock_staged as staged on staged.staged_id between stage.first_id and stage.last_id
    where stage.queue_id = :queue_id
);

-- name: delete_stages
-- Delete the stages of the queue.
delete from penstock_stage where queue_id = :queue_id;

-- name: delete_trimmed
-- Delete the recorded starts of the queue's log and audit.
delete from penstock_trimmed where queue_id = :queue_id;

-- name: delete_trail
-- Delete the recorded end of the queue's audit.
delete from penstock_trail where queue_id = :queue_id;

-- name: delete_removed_consumers
-- Forget consumers that were removed from the queue's groups.
delete from penstock_removed_consumer
where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: delete_groups
-- Remove the queue's groups.
delete from penstock_group where queue_id = :queue_id;

-- name: delete_queue
-- Remove the queue and its policy.
delete from penstock_queue where queue_id = :queue_id;

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

-- name: flush_held
-- Remove the queue's held messages.
delete from penstock_held where queue_id = :queue_id;

-- name: flush_identities
-- Remove the queue's chosen ids.
delete from penstock_identity where queue_id = :queue_id;

-- name: flush_audit
-- Remove the queue's audit.
delete from penstock_audit where queue_id = :queue_id;

-- name: flush_removed
-- Forget which messages were removed one by one.
delete from penstock_removed where queue_id = :queue_id;

-- name: flush_addresses
-- Free the queue's addresses.
delete from penstock_address where queue_id = :queue_id;

-- name: flush_batches
-- Remove the queue's batches.
delete from penstock_batch where queue_id = :queue_id;

-- name: flush_marks
-- Remove the queue's marks.
delete from penstock_mark where queue_id = :queue_id;

-- name: flush_lanes
-- Remove the queue's lanes.
delete from penstock_lane where queue_id = :queue_id;

-- name: flush_groups
-- Reset the counts of groups, keeping the totals of endings. A stream continues from the end.
update penstock_group
set undone_succeeded = undone_succeeded + succeeded, undone_rejected = undone_rejected + rejected,
    undone_failed = undone_failed + failed, undone_lease_expired = undone_lease_expired + lease_expired,
    undone_expired = undone_expired + expired, undone_cancelled = undone_cancelled + cancelled,
    succeeded = 0, rejected = 0, failed = 0, lease_expired = 0, expired = 0, cancelled = 0,
    stream_position = case
        when stream_position is null then null
        when stream_table = 'messages' then :last_position
        else :last_entry
    end
where queue_id = :queue_id;

-- name: flush_queue
-- Reset the held count, and record that everything up to now was removed.
update penstock_queue set held = 0, trimmed_position = :last_position
where queue_id = :queue_id;
