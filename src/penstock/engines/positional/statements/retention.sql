-- name: first_unfinished
-- The first position of a queue that is not finished in a group.
select min(position) from (
    select min(greatest(run.first_position, coalesce("cursor".position, :trimmed_position) + 1)) as position
    from penstock_lane as lane
    left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = lane.lane_id
    join penstock_run as run
        on run.lane_id = lane.lane_id and run.last_position = (
            select next.last_position from penstock_run as next
            where next.lane_id = lane.lane_id and next.last_position > coalesce("cursor".position, :trimmed_position)
            order by next.last_position limit 1
        )
    where lane.queue_id = :queue_id and lane.priority >= 0
    union all
    select * from (
        select first_position from penstock_lease where group_id = :group_id order by last_position limit 1
    ) as leased
    union all
    select min(position) from penstock_tracked where group_id = :group_id
) as unfinished;

-- name: active_groups
-- Groups that hold back trimming: used recently, or with leased or tracked messages.
select group_id, queue_id, name, stream_position, used_at, stream_table
from penstock_group
where queue_id = :queue_id and used_at > :idle_since;

-- name: first_unfollowed
-- The first position with an audit entry that a stream of the audit has not read.
select min(first_position)
from penstock_audit
where entry_id > :mark and queue_id = :queue_id and last_position > :trimmed_position;

-- name: latest_mark
-- The latest mark of the queue.
select at, position from penstock_mark where queue_id = :queue_id order by at desc limit 1;

-- name: make_mark
-- Record that everything up to a position is finished now.
insert or replace into penstock_mark (queue_id, at, position) values (:queue_id, :now, :position);

-- name: old_mark
-- The last position up to which everything has been finished for the whole retention.
select max(position) from penstock_mark where queue_id = :queue_id and at <= :before;

-- name: drop_marks
-- Delete marks up to a position.
delete from penstock_mark where queue_id = :queue_id and position <= :position;

-- name: first_position
-- The first position of the queue.
select min(first_position)
from penstock_lane as lane
join penstock_run as run using (lane_id)
where lane.queue_id = :queue_id
    and run.last_position = (
        select first.last_position from penstock_run as first where first.lane_id = lane.lane_id
        order by first.last_position limit 1
    );

-- name: trim_lanes
-- Number of messages of each lane up to a position.
select lane.lane_id,
    coalesce(sum(least(run.last_position, :upto) - run.first_position + 1), 0)
from penstock_lane as lane
join penstock_run as run using (lane_id)
where lane.queue_id = :queue_id and run.first_position <= :upto
    and run.last_position <= (
        select coalesce(min(beyond.last_position), :upto) from penstock_run as beyond
        where beyond.lane_id = lane.lane_id and beyond.last_position >= :upto
    )
group by lane.lane_id;

-- name: count_trimmed
-- Add to the number of trimmed messages of a lane.
update penstock_lane set trimmed = trimmed + :count where lane_id = :lane_id;

-- name: trim_emptied
-- Remove cleared entries before the start of the audit.
delete /*! audit */ from penstock_audit /*! as audit force index (penstock_audit_position) */
where last_position = 0 and event = 'remove' and queue_id = :queue_id and entry_id < (
    select number from penstock_trimmed where queue_id = :queue_id and kind = 'audit'
);

-- name: note_removed_message
-- Record a removed message.
insert or ignore into penstock_removed (queue_id, position, created_at) values (:queue_id, :position, :created_at);

-- name: drop_removed_messages
-- Forget removed messages before the start of the log that no readable entry covers.
delete from penstock_removed
where queue_id = :queue_id and position <= :upto and not exists (
    select 1 from penstock_audit as audit /*! force index (penstock_audit_position) */
    where audit.queue_id = :queue_id and audit.last_position between penstock_removed.position
            and penstock_removed.position + :span
        and audit.first_position <= penstock_removed.position
        and audit.entry_id > coalesce(
            (select number from penstock_trimmed where queue_id = :queue_id and kind = 'audit'), 0
        )
);

-- name: trimmed_identities
-- Chosen ids of removed messages, which may be used again.
-- The rows are then deleted by their keys: a deletion by a range would also lock the row behind the range, which may be
-- one that another queue's sender has not committed.
select id from penstock_identity /*! force index (penstock_identity_position) */
where queue_id = :queue_id and position between :from and :upto
    and not exists (
        select 1 from penstock_log as log /*! force index (primary) */ where log.position = penstock_identity.position
    );

-- name: drop_identities
-- Remove chosen ids.
delete /*! chosen */ from penstock_identity /*! as chosen force index (primary) */
where queue_id = :queue_id and id in (:values);

-- name: trimmed_addresses
-- Addresses whose last message was removed.
select address from penstock_address /*! force index (penstock_address_position) */
where queue_id = :queue_id and outcome is not null and position between :from and :upto
    and not exists (
        select 1 from penstock_log as log /*! force index (primary) */ where log.position = penstock_address.position
    );

-- name: drop_addresses
-- Remove addresses.
delete /*! owner */ from penstock_address /*! as owner force index (primary) */
where queue_id = :queue_id and address in (:values);

-- name: set_trimmed_position
-- Record the last trimmed position.
update penstock_queue set trimmed_position = :upto where queue_id = :queue_id;

-- name: idle_groups_passed
-- Groups whose cursor is before a position.
select distinct reader.group_id, reader.name
from penstock_group as reader
join penstock_cursor as "cursor" using (group_id)
join penstock_lane_end as lane using (lane_id)
where reader.queue_id = :queue_id and "cursor".position < :upto and lane.last_position > "cursor".position;
