-- name: find_queue
-- One queue by name.
select queue_id, name, policy, held, trimmed_position, created_at, primary_group_id
from penstock_queue
where name = ?;

-- name: find_reader
-- A queue and one of its groups in one step: the named one, or the primary one when no name is given.
select queue.queue_id, queue.name, queue.policy, queue.held, queue.trimmed_position, queue.created_at,
    queue.primary_group_id,
    reader.group_id, reader.queue_id, reader.name, reader.stream_position, reader.used_at, reader.stream_table
from penstock_queue as queue
left join penstock_group as reader
    on reader.queue_id = queue.queue_id
    and reader.name = coalesce(
        ?2,
        (select first.name from penstock_group as first where first.group_id = queue.primary_group_id),
        json_extract(queue.policy, '$.primary_group'),
        'default'
    )
where queue.name = ?1;

-- name: all_queues
-- All queues by name.
select queue_id, name, policy, held, trimmed_position, created_at, primary_group_id
from penstock_queue
order by name;

-- name: make_queue
-- A new queue.
insert into penstock_queue (name, policy, created_at) values (:name, :policy, :now)
returning queue_id;

-- name: set_policy
-- A change applies from the next operation on.
update penstock_queue
set policy = :policy, primary_group_id = (
    select group_id from penstock_group where queue_id = :queue_id and name = :primary_group
)
where queue_id = :queue_id;

-- name: set_primary
-- The primary group is there.
update penstock_queue set primary_group_id = :group_id where queue_id = :queue_id;

-- name: count_held
-- Keep count of held messages.
update penstock_queue set held = held + :change where queue_id = :queue_id;

-- name: find_group
-- One group by name.
select group_id, queue_id, name, stream_position, used_at, stream_table
from penstock_group
where queue_id = :queue_id and name = :name;

-- name: all_groups
-- The groups of a queue by name.
select group_id, queue_id, name, stream_position, used_at, stream_table
from penstock_group
where queue_id = :queue_id
order by name;

-- name: make_group
-- A group exists from its first use.
insert into penstock_group (queue_id, name, used_at) values (:queue_id, :name, :now)
returning group_id, queue_id, name, stream_position, used_at, stream_table;

-- name: count_withdrawn
-- What ended while held before the group began counts for it too, as for every group.
update penstock_group
set expired = coalesce(ended.expired, 0), cancelled = coalesce(ended.cancelled, 0)
from (
    select
        sum(audit.state = 'expired') as expired,
        sum(audit.state = 'cancelled') as cancelled
    from penstock_lane as lane
    join penstock_run as run using (lane_id)
    join penstock_audit as audit on audit.last_position between run.first_position and run.last_position
    where lane.queue_id = :queue_id and lane.priority < 0 and audit.group_id is null
) as ended
where group_id = :group_id;

-- name: look_back
-- Messages came into view whose time passed earlier: the next sweep looks back that far.
update penstock_group set expired_upto = min(expired_upto, :since)
where queue_id = :queue_id and (:group_id is null or group_id = :group_id);

-- name: live_messages
-- Whether anything of the queue is held, unread, leased or waiting for a retry.
select exists (select 1 from penstock_held where queue_id = :queue_id)
    or exists (
        select 1
        from penstock_lane_end as lane
        join penstock_group as reader using (queue_id)
        left join penstock_cursor as cursor using (group_id, lane_id)
        where lane.queue_id = :queue_id and lane.priority >= 0 and lane.sent > coalesce(cursor.passed, lane.trimmed)
    )
    or exists (select 1 from penstock_lease join penstock_group using (group_id) where queue_id = :queue_id)
    or exists (select 1 from penstock_tracked join penstock_group using (group_id) where queue_id = :queue_id);

-- name: flush_counts
-- How many messages the queue holds.
select (select coalesce(sum(sent - trimmed), 0) from penstock_lane_end where queue_id = :queue_id)
    + (select held from penstock_queue where queue_id = :queue_id);

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
-- Remove messages that only a dead letter kept.
delete from penstock_log
where position in (
    select dead.position
    from penstock_dead_letter as dead
    join penstock_group as reader using (group_id)
    where reader.queue_id = :queue_id
);

-- name: flush_runs
-- Remove the queue's stretches.
delete from penstock_run where lane_id in (select lane_id from penstock_lane where queue_id = :queue_id);

-- name: flush_cursors
-- Remove the cursors of the queue's lanes.
delete from penstock_cursor where lane_id in (select lane_id from penstock_lane where queue_id = :queue_id);

-- name: flush_leases
-- End the queue's leases.
delete from penstock_lease where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: flush_tracked
-- Forget the queue's retries.
delete from penstock_tracked where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: flush_skips
-- Forget what was passed over.
delete from penstock_skip where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: flush_dead_letters
-- Remove the queue's dead letters.
delete from penstock_dead_letter where group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: flush_members
-- Remove the members of the queue's batches.
delete from penstock_member where batch_id in (select batch_id from penstock_batch where queue_id = :queue_id);

-- name: flush_held
-- Remove the queue's held messages.
delete from penstock_held where queue_id = :queue_id;

-- name: flush_identities
-- Forget the queue's chosen ids.
delete from penstock_identity where queue_id = :queue_id;

-- name: flush_audit
-- Forget what happened in the queue.
delete from penstock_audit where queue_id = :queue_id;

-- name: flush_removed
-- Forget which messages were taken out one by one.
delete from penstock_removed where queue_id = :queue_id;

-- name: flush_addresses
-- Free the queue's addresses.
delete from penstock_address where queue_id = :queue_id;

-- name: flush_batches
-- Remove the queue's batches.
delete from penstock_batch where queue_id = :queue_id;

-- name: flush_marks
-- Forget when the queue was finished up to where.
delete from penstock_mark where queue_id = :queue_id;

-- name: flush_lanes
-- Remove the queue's lanes.
delete from penstock_lane where queue_id = :queue_id;

-- name: flush_groups
-- Groups stay, with their counts at zero; a stream goes on from the end.
update penstock_group
set succeeded = 0, rejected = 0, failed = 0, lease_expired = 0, expired = 0, cancelled = 0,
    stream_position = case
        when stream_position is null then null
        when stream_table = 'messages' then :last_position
        else :last_entry
    end
where queue_id = :queue_id;

-- name: flush_queue
-- Nothing is held any more, and everything up to now is gone.
update penstock_queue set held = 0, trimmed_position = :last_position
where queue_id = :queue_id;

-- name: forget_trail
-- A group is removed: the trail is whole again from behind its last step on.
insert into penstock_trimmed (queue_id, kind, number, at)
select queue_id, 'audit', entry_id, at from (
    select queue_id, max(entry_id) as entry_id, at from penstock_audit where group_id = :group_id
)
where entry_id is not null
on conflict (queue_id, kind) do update set number = excluded.number, at = excluded.at
where excluded.number > penstock_trimmed.number;

-- name: forget_cursors
-- A group is removed: how far it has read.
delete from penstock_cursor where group_id = :group_id;

-- name: forget_leases
-- A group is removed: what it has in flight.
delete from penstock_lease where group_id = :group_id;

-- name: forget_tracked
-- A group is removed: its retries.
delete from penstock_tracked where group_id = :group_id;

-- name: forget_skips
-- A group is removed: what it would pass over.
delete from penstock_skip where group_id = :group_id;

-- name: forget_dead_letters
-- A group is removed: what ended in it without success.
delete from penstock_dead_letter where group_id = :group_id;

-- name: forget_consumers
-- A group is removed: who reads for it.
delete from penstock_consumer where group_id = :group_id;

-- name: forget_audit
-- A group is removed: what it did.
delete from penstock_audit where group_id = :group_id;

-- name: forget_group
-- A group is removed: the group itself.
delete from penstock_group where group_id = :group_id;
