-- name: due
-- Whether anything has to be made ready or reclaimed before messages are taken, whether retries are ready, whether
-- something has to be passed over, and the latest token in use.
select
    exists (select 1 from penstock_held where queue_id = :queue_id and waiting = 0 and available_at <= :now),
    exists (select 1 from penstock_tracked where group_id = :group_id and state = 'held' and until_at <= :now),
    exists (select 1 from penstock_lease where group_id = :group_id and ends_at <= :now)
        or exists (select 1 from penstock_tracked where group_id = :group_id and state = 'leased' and until_at <= :now),
    exists (select 1 from penstock_tracked where group_id = :group_id and state = 'ready'),
    exists (select 1 from penstock_skip where group_id = :group_id),
    (select coalesce(max(token), 0) from penstock_lease);

-- name: unread_lanes
-- Lanes with messages that the group has not read, best priority first.
select lane.lane_id, lane.priority, lane.shard, lane.careful, lane.last_position,
    coalesce(cursor.position, :trimmed_position), coalesce(cursor.passed, lane.trimmed)
from penstock_lane_end as lane
left join penstock_cursor as cursor on cursor.group_id = :group_id and cursor.lane_id = lane.lane_id
where lane.queue_id = :queue_id and lane.priority >= 0
    and lane.last_position > coalesce(cursor.position, :trimmed_position)
order by lane.priority, lane.shard;

-- name: next_run
-- The stretch of the lane that comes after a position.
select max(first_position, :after + 1), last_position
from penstock_run
where lane_id = :lane_id and last_position > :after
order by last_position
limit 1;

-- name: read_run
-- Messages in a row, as a receipt has them.
select position, created_at, id, content_type, headers, expires_at, deadline_at, address, key, null, created_by,
    payload, :priority, 1, :ends_at
from penstock_log
where position between :first and :last;

-- name: read_lane
-- Messages of a lane after a position, over several stretches.
select log.position, log.created_at, log.id, log.content_type, log.headers, log.expires_at, log.deadline_at,
    log.address, log.key, null, log.created_by, log.payload, :priority, 1, :ends_at
from penstock_run as run
cross join penstock_log as log on log.position between max(run.first_position, :after + 1) and run.last_position
where run.lane_id = :lane_id and run.last_position > :after
order by run.last_position, log.position
limit :limit;

-- name: read_lane_carefully
-- The same, without messages that are over: expired, past their deadline, of a cancelled batch, or ended already.
select log.position, log.created_at, log.id, log.content_type, log.headers, log.expires_at, log.deadline_at,
    log.address, log.key, batch.name, log.created_by, log.payload, :priority, 1,
    min(
        :ends_at,
        coalesce(log.expires_at, :ends_at),
        case when log.deadline_at > :now then log.deadline_at else :ends_at end
    )
from penstock_run as run
cross join penstock_log as log on log.position between max(run.first_position, :after + 1) and run.last_position
left join penstock_batch as batch on batch.batch_id = log.batch_id
where run.lane_id = :lane_id and run.last_position > :after
    and (log.expires_at is null or log.expires_at > :now)
    and (not :at_most_once or log.deadline_at is null or log.deadline_at > :now)
    and (batch.state is null or batch.state not in ('cancelling', 'cancelled'))
    and not exists (
        select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position
    )
order by run.last_position, log.position
limit :limit;

-- name: passed_over
-- Messages of a lane between two positions that are over, but not yet ended in the group.
select log.position,
    case
        when log.expires_at <= :now then 'expire'
        when :at_most_once and log.deadline_at <= :now then 'deadline'
        else 'batch_cancel'
    end
from penstock_run as run
cross join penstock_log as log
    on log.position between max(run.first_position, :after + 1) and min(run.last_position, :upto)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where run.lane_id = :lane_id and run.last_position > :after
    and run.last_position <= (
        select coalesce(min(beyond.last_position), :upto) from penstock_run as beyond
        where beyond.lane_id = :lane_id and beyond.last_position >= :upto
    )
    and (
        log.expires_at <= :now
        or (:at_most_once and log.deadline_at <= :now)
        or batch.state in ('cancelling', 'cancelled')
    )
    and not exists (
        select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position
    )
order by log.position;

-- name: count_run
-- How many messages of the lane lie between two positions. Stretches beyond are not looked at: there may be millions.
select coalesce(sum(max(0, min(last_position, :upto) - max(first_position, :after + 1) + 1)), 0)
from penstock_run
where lane_id = :lane_id and last_position > :after
    and last_position <= (
        select coalesce(min(beyond.last_position), :upto) from penstock_run as beyond
        where beyond.lane_id = :lane_id and beyond.last_position >= :upto
    );

-- name: move_cursor
-- The group has read this far.
insert into penstock_cursor (group_id, lane_id, position, passed) values (:group_id, :lane_id, :position, :passed)
on conflict (group_id, lane_id) do update set position = excluded.position, passed = excluded.passed;

-- name: ready_tracked
-- Retries that are ready, best priority first.
select position, priority, coalesce(token, 0)
from penstock_tracked
where group_id = :group_id and state = 'ready'
order by priority, position
limit :limit;

-- name: read_tracked
-- A retry, as a receipt has it.
select log.position, log.created_at, log.id, log.content_type, log.headers, tracked.expires_at, tracked.deadline_at,
    log.address, log.key, batch.name, log.created_by, log.payload, tracked.priority, tracked.attempt + 1, :ends_at
from penstock_tracked as tracked
join penstock_log as log using (position)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where tracked.group_id = :group_id and tracked.position = :position;

-- name: touch_group
-- When the group was last used; not written down every time.
update penstock_group set used_at = :now where group_id = :group_id;

-- name: home
-- A registered consumer's place in birth order, and how many are alive.
select
    (
        select count(*) from penstock_consumer as older
        where older.group_id = self.group_id and older.consumer_id < self.consumer_id
    ),
    (select count(*) from penstock_consumer as living where living.group_id = self.group_id)
from penstock_consumer as self
where self.group_id = :group_id and self.name = :name;

-- name: blocked_shards
-- Shards of an ordered queue in which something is in flight.
select lane.shard from penstock_lease as lease join penstock_lane as lane using (lane_id)
where lease.group_id = :group_id
union
select lane.shard from penstock_tracked as tracked join penstock_lane as lane using (lane_id)
where tracked.group_id = :group_id and tracked.state = 'leased';

-- name: tracked_in_order
-- The retries of an ordered queue, waiting or ready, in the order of the log.
select tracked.position, tracked.priority, lane.shard, tracked.state, coalesce(tracked.token, 0)
from penstock_tracked as tracked
join penstock_lane as lane using (lane_id)
where tracked.group_id = :group_id and tracked.state in ('held', 'ready')
order by tracked.position;
