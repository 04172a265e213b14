-- name: queue_by_id
-- One queue by number.
select queue_id, name, policy, held, trimmed_position, created_at, primary_group_id
from penstock_queue
where queue_id = :queue_id
for update;

-- name: find_queue
-- One queue by name.
select queue_id, name, policy, held, trimmed_position, created_at, primary_group_id
from penstock_queue
where name = ?
for update;

-- name: find_reader
-- A queue and one of its groups: the named one, else the primary one.
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
-- Create a queue.
insert into penstock_queue (name, policy, created_at) values (:name, :policy, :now)
/*! on duplicate key update name = name */;

-- name: set_policy
-- Set the policy; it applies from the next operation on.
update penstock_queue
set policy = :policy, /*! revision = revision + 1, */ primary_group_id = (
    select group_id from penstock_group where queue_id = :queue_id and name = :primary_group
)
where queue_id = :queue_id;

-- name: set_primary
-- Set the primary group.
update penstock_queue set primary_group_id = :group_id where queue_id = :queue_id;

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

-- name: recheck_expiry
-- Make the next sweep check again from a time on: messages became visible whose time had passed.
update penstock_group set expired_upto = least(expired_upto, :since)
where queue_id = :queue_id and (:group_id is null or group_id = :group_id);

-- name: live_messages
-- Whether the queue has a message that is held, unread, leased or waiting for a retry.
select exists (select 1 from penstock_held where queue_id = :queue_id)
    or exists (
        select 1
        from penstock_lane_end as lane
        join penstock_group as reader using (queue_id)
        left join penstock_cursor as "cursor" using (group_id, lane_id)
        where lane.queue_id = :queue_id and lane.priority >= 0 and lane.sent > coalesce("cursor".passed, lane.trimmed)
    )
    or exists (select 1 from penstock_lease join penstock_group using (group_id) where queue_id = :queue_id)
    or exists (select 1 from penstock_tracked join penstock_group using (group_id) where queue_id = :queue_id);

-- name: drop_unused_group
-- Delete a former primary group that was never used.
delete from penstock_group
where queue_id = :queue_id and name = :name and stream_position is null
    and succeeded + rejected + failed + lease_expired + expired + cancelled + failed_attempts = 0
    and undone_succeeded + undone_rejected + undone_failed + undone_lease_expired + undone_expired + undone_cancelled = 0
    and not exists (select 1 from penstock_cursor as one where one.group_id = penstock_group.group_id)
    and not exists (select 1 from penstock_tracked as one where one.group_id = penstock_group.group_id)
    and not exists (select 1 from penstock_consumer as one where one.group_id = penstock_group.group_id)
    and not exists (select 1 from penstock_skip as one where one.group_id = penstock_group.group_id);

-- name: forget_trail
-- The audit of the queue is complete again after the last entry of the removed group.
insert into penstock_trimmed (queue_id, kind, number, at)
select last.queue_id, 'audit', last.entry_id, last.entered_at from (
    select queue_id, entry_id, at as entered_at from penstock_audit
    where group_id = :group_id
    order by entry_id desc
    limit 1
) as last
where true
on conflict (queue_id, kind) do update
set at = iif(excluded.number > number, excluded.at, at), number = greatest(number, excluded.number);

-- name: forget_cursors
-- Remove the cursors of a group.
delete from penstock_cursor where group_id = :group_id;

-- name: forget_leases
-- Remove the leases of a group.
delete from penstock_lease where group_id = :group_id;

-- name: forget_tracked
-- Remove the tracked messages of a group.
delete from penstock_tracked where group_id = :group_id;

-- name: forget_skips
-- Remove the skips of a group.
delete from penstock_skip where group_id = :group_id;

-- name: forget_dead_letters
-- Remove the dead letters of a group.
delete from penstock_dead_letter where group_id = :group_id;

-- name: forget_consumers
-- Remove the consumers of a group.
delete from penstock_consumer where group_id = :group_id;

-- name: forget_removed_consumers
-- Forget the removed consumers of a group.
delete from penstock_removed_consumer where group_id = :group_id;

-- name: forget_audit
-- Remove the audit entries of a group.
delete from penstock_audit where group_id = :group_id;

-- name: forget_group
-- Remove a group.
delete from penstock_group where group_id = :group_id;
