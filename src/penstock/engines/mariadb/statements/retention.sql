-- name: first_unexpired
-- The first position after another one whose message has not expired.
select min((
    select log.position
    from penstock_log as log
    where log.lane_id = lane.lane_id and log.position > :after
        and (log.expires_at is null or log.expires_at > :now)
    order by log.position
    limit 1
))
from penstock_lane as lane
where lane.queue_id = :queue_id and lane.priority >= 0;

-- name: trim_log
-- Remove messages of the queue up to a position, except those with a dead letter or that are tracked.
delete log from penstock_lane as lane
straight_join penstock_log as log force index (penstock_log_lane) on log.lane_id = lane.lane_id
where lane.queue_id = :queue_id
    and log.position > (select trimmed_position from penstock_queue where queue_id = :queue_id) and log.position <= :upto
    and not exists (select 1 from penstock_dead_letter as dead where dead.position = log.position)
    and not exists (
        select 1 from penstock_group as reader join penstock_tracked as tracked using (group_id)
        where reader.queue_id = :queue_id and tracked.position = log.position
    );

-- name: trim_kept
-- Remove and return messages whose dead letter was deleted and that no stream of the audit still needs.
select log.position from penstock_lane as lane
straight_join penstock_log as log force index (penstock_log_lane) on log.lane_id = lane.lane_id
where lane.queue_id = :queue_id and log.position <= :upto
    and not exists (select 1 from penstock_dead_letter as dead where dead.position = log.position)
    and not exists (
        select 1 from penstock_group as reader join penstock_tracked as tracked using (group_id)
        where reader.queue_id = :queue_id and tracked.position = log.position
    )
    and not exists (
        select 1 from penstock_audit as later
        where later.entry_id > :followed and later.queue_id = :queue_id
            and log.position between later.first_position and later.last_position
    );
delete log from penstock_lane as lane
straight_join penstock_log as log force index (penstock_log_lane) on log.lane_id = lane.lane_id
where lane.queue_id = :queue_id and log.position <= :upto
    and not exists (select 1 from penstock_dead_letter as dead where dead.position = log.position)
    and not exists (
        select 1 from penstock_group as reader join penstock_tracked as tracked using (group_id)
        where reader.queue_id = :queue_id and tracked.position = log.position
    )
    and not exists (
        select 1 from penstock_audit as later
        where later.entry_id > :followed and later.queue_id = :queue_id
            and log.position between later.first_position and later.last_position
    );

-- name: trim_runs
-- Remove runs up to a position.
delete run from penstock_lane as lane
straight_join penstock_run as run force index (primary) on run.lane_id = lane.lane_id
where lane.queue_id = :queue_id and run.last_position <= :upto;

-- name: shorten_runs
-- Shorten the run of each lane that contains the position. Assignments take effect from left to right.
update penstock_lane as lane
straight_join penstock_run as run force index (primary) on run.lane_id = lane.lane_id
set run.`before` = run.`before` + :upto + 1 - run.first_position, run.first_position = :upto + 1
where lane.queue_id = :queue_id and run.first_position <= :upto and run.last_position > :upto;

-- name: trim_cursors
-- Move the cursors of idle groups to the start of the log.
update penstock_lane as lane
straight_join penstock_cursor as place force index (penstock_cursor_lane) on place.lane_id = lane.lane_id
set place.position = :upto, place.passed = lane.trimmed
where lane.queue_id = :queue_id and place.position < :upto;

-- name: trim_skips
-- Remove skips up to the position.
delete skip from penstock_group as reader
straight_join penstock_skip as skip force index (primary) on skip.group_id = reader.group_id
where reader.queue_id = :queue_id and skip.position <= :upto;

-- name: trim_audit
-- Remove the audit of removed messages; dead letters keep theirs. The messages that are left are read once: a search for
-- each entry would pass over the removed rows every time.
delete audit from penstock_audit as audit force index (penstock_audit_position)
where audit.queue_id = :queue_id and audit.last_position between :from and :upto + :span
    and audit.first_position between 1 and :upto
    and not exists (
        select 1 from (
            select distinct log.position from penstock_lane as lane
            straight_join penstock_log as log force index (penstock_log_lane) on log.lane_id = lane.lane_id
            where lane.queue_id = :queue_id and log.position between :from and :upto
        ) as kept
        where kept.position between audit.first_position and audit.last_position
    )
    and (audit.last_position <= :upto or not exists (
        select 1 from (
            select distinct log.position from penstock_lane as lane
            straight_join penstock_log as log force index (penstock_log_lane) on log.lane_id = lane.lane_id
            where lane.queue_id = :queue_id and log.position between :upto + 1 and :upto + :span
        ) as kept
        where kept.position between audit.first_position and audit.last_position
    ));

-- name: set_trimmed_entry
-- Record the last entry that may cover trimmed messages.
insert into penstock_trimmed (queue_id, kind, number, at)
select last.queue_id, 'audit', last.entry_id, last.at from (
    select queue_id, entry_id, at from penstock_audit force index (penstock_audit_position)
    where queue_id = :queue_id and last_position between :from and :upto + :span and first_position <= :upto
    order by entry_id desc
    limit 1
) as last
on duplicate key update
    penstock_trimmed.at = if(values(number) > number, values(at), penstock_trimmed.at),
    number = greatest(number, values(number));

-- name: empty_audit
-- Clear entries that cover only removed messages; their numbers stay for marks that name them.
update penstock_audit force index (penstock_audit_position)
set last_position = 0, first_position = 0, group_id = null, event = 'remove', state = 'cancelled', `by` = null,
    reason = null, attempt = 0, token = null
where queue_id = :queue_id and last_position between :from and :upto + :span and first_position between 1 and :upto
    and not exists (
        select 1 from (
            select distinct log.position from penstock_lane as lane
            straight_join penstock_log as log force index (penstock_log_lane) on log.lane_id = lane.lane_id
            where lane.queue_id = :queue_id and log.position between :from - :span and :upto + :span
        ) as kept
        where kept.position between penstock_audit.first_position and penstock_audit.last_position
    );

-- name: trim_batch_queues
-- Nothing: the links of batches are removed with them.
do 0;

-- name: trim_batches
-- Remove batches that ended before the retention and before the oldest remaining message was sent: messages show the
-- name of their batch.
delete batch, other from penstock_batch as batch force index (penstock_batch_name)
left join penstock_batch_queue as other on other.batch_id = batch.batch_id
where batch.queue_id = :queue_id and batch.ended_at <= :before and batch.ended_at < coalesce(
    (
        select min((
            select log.created_at from penstock_log as log
            where log.lane_id = lane.lane_id and log.position > :upto and log.available_at is null
            order by log.position
            limit 1
        ))
        from penstock_lane as lane
        where lane.queue_id = :queue_id
    ),
    9223372036854775807
);
