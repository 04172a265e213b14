-- name: first_unfinished
-- The first position of a queue that is not finished in a group.
select min(position) from (
    select min(max(run.first_position, coalesce(cursor.position, :trimmed_position) + 1)) as position
    from penstock_lane as lane
    left join penstock_cursor as cursor on cursor.group_id = :group_id and cursor.lane_id = lane.lane_id
    join penstock_run as run
        on run.lane_id = lane.lane_id and run.last_position = (
            select min(next.last_position) from penstock_run as next
            where next.lane_id = lane.lane_id and next.last_position > coalesce(cursor.position, :trimmed_position)
        )
    where lane.queue_id = :queue_id and lane.priority >= 0
    union all
    select * from (
        select first_position from penstock_lease where group_id = :group_id order by last_position limit 1
    )
    union all
    select min(position) from penstock_tracked where group_id = :group_id
);

-- name: first_unexpired
-- The first position after another one whose message has not expired.
select min((
    select log.position
    from penstock_run as run
    cross join penstock_log as log on log.position between max(run.first_position, :after + 1) and run.last_position
    where run.lane_id = lane.lane_id and run.last_position > :after
        and (log.expires_at is null or log.expires_at > :now)
    order by run.last_position, log.position
    limit 1
))
from penstock_lane as lane
where lane.queue_id = :queue_id and lane.priority >= 0;

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
    and run.last_position = (select min(first.last_position) from penstock_run as first where first.lane_id = lane.lane_id);

-- name: trim_lanes
-- Number of messages of each lane up to a position.
select lane.lane_id,
    coalesce(sum(min(run.last_position, :upto) - run.first_position + 1), 0)
from penstock_lane as lane
join penstock_run as run using (lane_id)
where lane.queue_id = :queue_id and run.first_position <= :upto
    and run.last_position <= (
        select coalesce(min(beyond.last_position), :upto) from penstock_run as beyond
        where beyond.lane_id = lane.lane_id and beyond.last_position >= :upto
    )
group by lane.lane_id;

-- name: trim_log
-- Remove messages of the queue up to a position, except those with a dead letter or that are tracked.
delete from penstock_log
where position in (
    select log.position
    from penstock_lane as lane
    join penstock_run as run using (lane_id)
    join penstock_log as log on log.position between run.first_position and min(run.last_position, :upto)
    where lane.queue_id = :queue_id and run.first_position <= :upto
        and run.last_position <= (
            select coalesce(min(beyond.last_position), :upto) from penstock_run as beyond
            where beyond.lane_id = lane.lane_id and beyond.last_position >= :upto
        )
        and not exists (select 1 from penstock_dead_letter as dead where dead.position = log.position)
        and not exists (
            select 1 from penstock_group as reader join penstock_tracked as tracked using (group_id)
            where reader.queue_id = :queue_id and tracked.position = log.position
        )
);

-- name: trim_kept
-- Remove messages whose dead letter was deleted and that no stream of the audit still needs.
delete from penstock_log
where position <= :upto
    and lane_id in (select lane_id from penstock_lane where queue_id = :queue_id)
    and not exists (select 1 from penstock_dead_letter as dead where dead.position = penstock_log.position)
    and not exists (
        select 1 from penstock_group as reader join penstock_tracked as tracked using (group_id)
        where reader.queue_id = :queue_id and tracked.position = penstock_log.position
    )
    and not exists (
        select 1 from penstock_audit as later
        where later.entry_id > :followed and later.queue_id = :queue_id
            and penstock_log.position between later.first_position and later.last_position
    )
returning position;

-- name: trim_runs
-- Remove runs up to a position.
delete from penstock_run
where last_position <= :upto and lane_id in (select lane_id from penstock_lane where queue_id = :queue_id);

-- name: shorten_runs
-- Shorten the run of each lane that contains the position.
update penstock_run set first_position = :upto + 1, before = before + :upto + 1 - first_position
where first_position <= :upto and (lane_id, last_position) in (
    select lane.lane_id, min(run.last_position)
    from penstock_lane as lane join penstock_run as run using (lane_id)
    where lane.queue_id = :queue_id
    group by lane.lane_id
);

-- name: count_trimmed
-- Add to the number of trimmed messages of a lane.
update penstock_lane set trimmed = trimmed + :count where lane_id = :lane_id;

-- name: trim_cursors
-- Move the cursors of idle groups to the start of the log.
update penstock_cursor
set position = :upto,
    passed = (select trimmed from penstock_lane as lane where lane.lane_id = penstock_cursor.lane_id)
where position < :upto and lane_id in (select lane_id from penstock_lane where queue_id = :queue_id);

-- name: trim_skips
-- Remove skips up to the position.
delete from penstock_skip
where position <= :upto and group_id in (select group_id from penstock_group where queue_id = :queue_id);

-- name: trim_audit
-- Remove the audit of removed messages; dead letters keep theirs.
delete from penstock_audit
where queue_id = :queue_id and last_position between :from and :upto + :span and first_position between 1 and :upto
    and not exists (
        select 1 from penstock_log as log
        where log.position between penstock_audit.first_position and penstock_audit.last_position
            and log.lane_id in (select lane_id from penstock_lane where queue_id = :queue_id)
    );

-- name: set_trimmed_entry
-- Record the last entry that may cover trimmed messages.
insert into penstock_trimmed (queue_id, kind, number, at)
select queue_id, 'audit', entry_id, at from (
    select queue_id, max(entry_id) as entry_id, at from penstock_audit
    where queue_id = :queue_id and last_position between :from and :upto + :span and first_position <= :upto
)
where entry_id is not null
on conflict (queue_id, kind) do update set number = excluded.number, at = excluded.at
where excluded.number > penstock_trimmed.number;

-- name: empty_audit
-- Clear entries that cover only removed messages; their numbers stay for marks that name them.
update penstock_audit
set last_position = 0, first_position = 0, group_id = null, event = 'remove', state = 'cancelled', by = null,
    reason = null, attempt = 0, token = null
where queue_id = :queue_id and last_position between :from and :upto + :span and first_position between 1 and :upto
    and not exists (
        select 1 from penstock_log as log
        where log.position between penstock_audit.first_position and penstock_audit.last_position
            and log.lane_id in (select lane_id from penstock_lane where queue_id = :queue_id)
    );

-- name: trim_emptied
-- Remove cleared entries before the start of the audit.
delete from penstock_audit
where last_position = 0 and event = 'remove' and queue_id = :queue_id and entry_id < (
    select number from penstock_trimmed where queue_id = :queue_id and kind = 'audit'
);

-- name: note_removed_message
-- Record a removed message.
insert into penstock_removed (queue_id, position, created_at) values (:queue_id, :position, :created_at)
on conflict do nothing;

-- name: drop_removed_messages
-- Forget removed messages before the start of the log that no readable entry covers.
delete from penstock_removed
where queue_id = :queue_id and position <= :upto and not exists (
    select 1 from penstock_audit as audit
    where audit.queue_id = :queue_id and audit.last_position between penstock_removed.position
            and penstock_removed.position + :span
        and audit.first_position <= penstock_removed.position
        and audit.entry_id > coalesce(
            (select number from penstock_trimmed where queue_id = :queue_id and kind = 'audit'), 0
        )
);

-- name: trimmed_identities
-- Chosen ids of removed messages, which may be used again.
select id from penstock_identity
where queue_id = :queue_id and position between :from and :upto
    and not exists (select 1 from penstock_log as log where log.position = penstock_identity.position);

-- name: drop_identities
-- Remove chosen ids.
delete from penstock_identity where queue_id = :queue_id and id in (select value from carray(:values));

-- name: trimmed_addresses
-- Addresses whose last message was removed.
select address from penstock_address
where queue_id = :queue_id and outcome is not null and position between :from and :upto
    and not exists (select 1 from penstock_log as log where log.position = penstock_address.position);

-- name: drop_addresses
-- Remove addresses.
delete from penstock_address where queue_id = :queue_id and address in (select value from carray(:values));

-- name: trim_batch_queues
-- Remove the links of removed batches.
delete from penstock_batch_queue where batch_id not in (select batch_id from penstock_batch);

-- name: trim_batches
-- Remove batches that ended before the retention and before the oldest remaining message was sent: messages show the
-- name of their batch.
delete from penstock_batch
where queue_id = :queue_id and ended_at <= :before and ended_at < coalesce(
    (
        select created_at from penstock_log
        where position > :upto and available_at is null
        order by position
        limit 1
    ),
    9223372036854775807
);

-- name: set_trimmed_position
-- Record the last trimmed position.
update penstock_queue set trimmed_position = :upto where queue_id = :queue_id;

-- name: idle_groups_passed
-- Groups whose cursor is before a position.
select distinct reader.group_id, reader.name
from penstock_group as reader
join penstock_cursor as cursor using (group_id)
join penstock_lane_end as lane using (lane_id)
where reader.queue_id = :queue_id and cursor.position < :upto and lane.last_position > cursor.position;
