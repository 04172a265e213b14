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

-- name: delete_stages
-- Delete the stages of the queue.
delete /*! gone */ from penstock_stage /*! as gone force index (penstock_stage_key) */ where queue_id = :queue_id;

-- name: delete_trimmed
-- Delete the recorded starts of the queue's log and audit.
delete /*! gone */ from penstock_trimmed /*! as gone force index (primary) */ where queue_id = :queue_id;

-- name: delete_removed_consumers
-- Forget consumers that were removed from the queue's groups.
delete from penstock_removed_consumer
where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: delete_groups
-- Remove the queue's groups.
delete /*! gone */ from penstock_group /*! as gone force index (penstock_group_name) */ where queue_id = :queue_id;

-- name: delete_queue
-- Remove the queue and its policy.
delete from penstock_queue where queue_id = :queue_id;

-- name: flush_held
-- Remove the queue's held messages.
delete /*! gone */ from penstock_held /*! as gone force index (penstock_held_due) */ where queue_id = :queue_id;

-- name: flush_identities
-- Remove the queue's chosen ids.
delete /*! gone */ from penstock_identity /*! as gone force index (primary) */ where queue_id = :queue_id;

-- name: flush_audit
-- Remove the queue's audit.
delete /*! gone */ from penstock_audit /*! as gone force index (primary) */ where queue_id = :queue_id;

-- name: flush_removed
-- Forget which messages were removed one by one.
delete /*! gone */ from penstock_removed /*! as gone force index (primary) */ where queue_id = :queue_id;

-- name: flush_addresses
-- Free the queue's addresses.
delete /*! gone */ from penstock_address /*! as gone force index (primary) */ where queue_id = :queue_id;

-- name: flush_batches
-- Remove the queue's batches.
delete /*! gone */ from penstock_batch /*! as gone force index (penstock_batch_name) */ where queue_id = :queue_id;

-- name: flush_marks
-- Remove the queue's marks.
delete /*! gone */ from penstock_mark /*! as gone force index (primary) */ where queue_id = :queue_id;

-- name: flush_lanes
-- Remove the queue's lanes.
delete /*! gone */ from penstock_lane /*! as gone force index (primary) */ where queue_id = :queue_id;

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
-- Reset the held count, and record that everything up to now was removed. The revision changes, because clients that remember
-- the queue remember its lanes as well.
update penstock_queue set /*! revision = revision + 1, */ held = 0, trimmed_position = :last_position
where queue_id = :queue_id;
