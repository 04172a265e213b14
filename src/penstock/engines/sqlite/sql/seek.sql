-- name: lanes
-- All lanes that can be read, with how far the group has read them.
select lane.lane_id, lane.trimmed,
    coalesce(cursor.position, :trimmed_position), coalesce(cursor.passed, lane.trimmed)
from penstock_lane as lane
left join penstock_cursor as cursor on cursor.group_id = :group_id and cursor.lane_id = lane.lane_id
where lane.queue_id = :queue_id and lane.priority >= 0;

-- name: at_time
-- When the next message was sent that was never held: those are in the order of their times, but for clock jumps.
select created_at from penstock_log
where position >= :position and available_at is null
order by position
limit 1;

-- name: terminal_entries
-- How messages between two positions ended in the group, and what brought them back, in order.
select first_position, last_position, state
from penstock_audit
where last_position > :after and last_position <= :upto + :span and first_position <= :upto
    and group_id = :group_id and event <> 'receive'
order by entry_id;

-- name: lane_runs
-- Stretches of a lane between two positions.
select max(first_position, :after + 1), min(last_position, :upto)
from penstock_run
where lane_id = :lane_id and last_position > :after and first_position <= :upto
    and last_position <= (
        select coalesce(min(beyond.last_position), :upto) from penstock_run as beyond
        where beyond.lane_id = :lane_id and beyond.last_position >= :upto
    );

-- name: uncount
-- Messages that are ready again have not ended.
update penstock_group
set succeeded = max(0, succeeded - :succeeded), rejected = max(0, rejected - :rejected),
    failed = max(0, failed - :failed), lease_expired = max(0, lease_expired - :lease_expired),
    expired = max(0, expired - :expired), cancelled = max(0, cancelled - :cancelled)
where group_id = :group_id;

-- name: dig_up
-- Dead letters of messages that are ready again.
delete from penstock_dead_letter where group_id = :group_id and position between :first and :last;

-- name: skip_live
-- What is in flight or waiting for a retry is not handed out a second time.
insert or ignore into penstock_skip (group_id, position)
select :group_id, position from penstock_tracked
where group_id = :group_id and position between :first and :last
union all
select :group_id, log.position
from penstock_lease as lease
join penstock_log as log on log.position between lease.first_position and lease.last_position
where lease.group_id = :group_id and log.position between :first and :last;

-- name: owned
-- Messages between two positions that somebody waits for: an address or a batch.
select log.position
from penstock_log as log
where log.position between :first and :last and (log.address is not null or log.batch_id is not null)
    and not exists (select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position);
