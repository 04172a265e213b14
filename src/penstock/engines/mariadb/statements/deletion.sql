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
delete staged from penstock_staged as staged
join penstock_stage as stage on staged.staged_id between stage.first_id and stage.last_id
where stage.queue_id = :queue_id;

-- name: delete_stages
-- Delete the stages of the queue.
delete gone from penstock_stage as gone force index (penstock_stage_key) where gone.queue_id = :queue_id;

-- name: delete_trimmed
-- Delete the recorded starts of the queue's log and audit.
delete gone from penstock_trimmed as gone force index (primary) where gone.queue_id = :queue_id;

-- name: delete_trail
-- Nothing: the end of a queue's audit is found by its key.
do 0;

-- name: delete_removed_consumers
-- Forget consumers that were removed from the queue's groups.
delete from penstock_removed_consumer
where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: delete_groups
-- Remove the queue's groups.
delete gone from penstock_group as gone force index (penstock_group_name) where gone.queue_id = :queue_id;

-- name: delete_queue
-- Remove the queue and its policy.
delete from penstock_queue where queue_id = :queue_id;

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

-- name: flush_held
-- Remove the queue's held messages.
delete gone from penstock_held as gone force index (penstock_held_due) where gone.queue_id = :queue_id;

-- name: flush_identities
-- Remove the queue's chosen ids.
delete gone from penstock_identity as gone force index (primary) where gone.queue_id = :queue_id;

-- name: flush_audit
-- Remove the queue's audit.
delete gone from penstock_audit as gone force index (primary) where gone.queue_id = :queue_id;

-- name: flush_removed
-- Forget which messages were removed one by one.
delete gone from penstock_removed as gone force index (primary) where gone.queue_id = :queue_id;

-- name: flush_addresses
-- Free the queue's addresses.
delete gone from penstock_address as gone force index (primary) where gone.queue_id = :queue_id;

-- name: flush_batches
-- Remove the queue's batches.
delete gone from penstock_batch as gone force index (penstock_batch_name) where gone.queue_id = :queue_id;

-- name: flush_marks
-- Remove the queue's marks.
delete gone from penstock_mark as gone force index (primary) where gone.queue_id = :queue_id;

-- name: flush_lanes
-- Remove the queue's lanes.
delete gone from penstock_lane as gone force index (primary) where gone.queue_id = :queue_id;

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
