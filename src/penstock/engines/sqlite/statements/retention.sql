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
