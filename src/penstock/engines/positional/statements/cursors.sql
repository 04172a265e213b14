-- name: group_lanes
-- All readable lanes, with the group's cursor in each.
select lane.lane_id, lane.trimmed,
    coalesce("cursor".position, :trimmed_position), coalesce("cursor".passed, lane.trimmed)
from penstock_lane as lane
left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = lane.lane_id
where lane.queue_id = :queue_id and lane.priority >= 0;

-- name: terminal_entries
-- Entries by which messages between two positions ended in the group or became live again, in order.
select first_position, last_position, state
from penstock_audit
where last_position > :after and last_position <= :upto + :span and first_position <= :upto
    and group_id = :group_id and event <> 'receive'
order by entry_id;

-- name: lane_runs
-- Runs of a lane between two positions.
select greatest(first_position, :after + 1), least(last_position, :upto)
from penstock_run
where lane_id = :lane_id and last_position > :after and first_position <= :upto
    and last_position <= (
        select coalesce(min(beyond.last_position), :upto) from penstock_run as beyond
        where beyond.lane_id = :lane_id and beyond.last_position >= :upto
    );

-- name: uncount_outcomes
-- Subtract messages that are live again; the totals of endings keep them.
update penstock_group
set undone_succeeded = undone_succeeded + least(succeeded, :succeeded), succeeded = greatest(0, succeeded - :succeeded),
    undone_rejected = undone_rejected + least(rejected, :rejected), rejected = greatest(0, rejected - :rejected),
    undone_failed = undone_failed + least(failed, :failed), failed = greatest(0, failed - :failed),
    undone_lease_expired = undone_lease_expired + least(lease_expired, :lease_expired),
    lease_expired = greatest(0, lease_expired - :lease_expired),
    undone_expired = undone_expired + least(expired, :expired), expired = greatest(0, expired - :expired),
    undone_cancelled = undone_cancelled + least(cancelled, :cancelled), cancelled = greatest(0, cancelled - :cancelled)
where group_id = :group_id;

-- name: remove_dead_letters
-- Delete the dead letters of messages that are ready again.
delete from penstock_dead_letter where group_id = :group_id and position between :first and :last;

-- name: skip_live
-- Skip messages that are leased or waiting for a retry, so that they are not delivered twice.
insert or ignore into penstock_skip (group_id, position)
select :group_id, position from penstock_tracked
where group_id = :group_id and position between :first and :last
union all
select :group_id, log.position
from penstock_lease as lease
join penstock_log as log on log.position between lease.first_position and lease.last_position
where lease.group_id = :group_id and log.position between :first and :last;

-- name: owned_messages
-- Messages between two positions that have an address or a batch.
select log.position
from penstock_log as log
where log.position between :first and :last and (log.address is not null or log.batch_id is not null)
    and not exists (select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position);

-- name: remove_skips
-- Remove skips that the cursor of a lane has passed. Positions in between may belong to other lanes.
delete from penstock_skip
where group_id = :group_id and position between :first and :last
    and (select log.lane_id from penstock_log as log where log.position = penstock_skip.position) = :lane_id;
