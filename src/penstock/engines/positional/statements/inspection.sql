-- name: message_at
-- One message of the log.
select log.position, lane.priority, log.created_at, log.id, log.content_type, log.headers, log.expires_at,
    log.deadline_at, log.address, log."key", batch.name, log.created_by, log.available_at, log.payload
from penstock_log as log
join penstock_lane as lane using (lane_id)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where log.position = :position;

-- name: held_message
-- One held message.
select null, held.priority, held.created_at, held.id, held.content_type, held.headers, held.expires_at,
    held.deadline_at, held.address, held."key", batch.name, held.created_by, held.available_at, held.payload
from penstock_held as held
left join penstock_batch as batch on batch.batch_id = held.batch_id
where held.held_id = :held_id;

-- name: messages_between
-- Messages between two positions, in order.
select /*! straight_join */
    log.position, lane.priority, log.created_at, log.id, log.content_type, log.headers, log.expires_at,
    log.deadline_at, log.address, log."key", batch.name, log.created_by, log.available_at, log.payload
from penstock_log as log
cross join penstock_lane as lane using (lane_id)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where log.position between :first and :last
order by log.position;

-- name: peek_tracked
-- Retries that could be received now, best priority first.
select position, priority
from penstock_tracked
where group_id = :group_id
    and (state = 'ready' or (state in ('held', 'leased') and until_at <= :now))
    and (expires_at is null or expires_at > :now)
order by priority, position
limit :limit;

-- name: peek_leased
-- First attempts whose lease has ended.
select log.position, lane.priority
from penstock_lease as lease
join penstock_log as log on log.position between lease.first_position and lease.last_position
join penstock_lane as lane on lane.lane_id = lease.lane_id
where lease.group_id = :group_id and lease.ends_at <= :now and (log.expires_at is null or log.expires_at > :now)
order by lane.priority, log.position
limit :limit;

-- name: busy_shards
-- What blocks shards of an ordered queue, as priority and position: everything while a message is in flight, else what
-- comes behind a message that waits for a retry.
select lane.shard, -1, 0
from penstock_lease as lease join penstock_lane as lane using (lane_id)
where lease.group_id = :group_id and lease.ends_at > :now
union all
select lane.shard,
    case when tracked.state = 'leased' then -1 else tracked.priority end,
    case when tracked.state = 'leased' then 0 else tracked.position end
from penstock_tracked as tracked join penstock_lane as lane using (lane_id)
where tracked.group_id = :group_id and tracked.state in ('leased', 'held') and tracked.until_at > :now
order by 1, 2, 3;

-- name: shard_at
-- The shard of a message.
select lane.shard from penstock_log as log join penstock_lane as lane using (lane_id) where log.position = :position;

-- name: next_due
-- The next time at which a message of the group may become ready without a commit.
select min(at) from (
    select min(available_at) as at from penstock_held where queue_id = :queue_id and waiting = 0
    union all
    select min(until_at) from penstock_tracked where group_id = :group_id and state = 'held'
    union all
    select min(until_at) from penstock_tracked where group_id = :group_id and state = 'leased'
    union all
    select min(lease_ends_at) from penstock_cursor
    where group_id = :group_id and exists (select 1 from penstock_lease where group_id = :group_id)
) as found;

-- name: any_ready
-- Whether the group could receive a message, in a queue that is not ordered.
select exists (select 1 from penstock_tracked where group_id = :group_id and state = 'ready')
    or exists (
        select 1
        from penstock_lane_end as lane
        left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = lane.lane_id
        where lane.queue_id = :queue_id and lane.priority >= 0
            and lane.last_position > coalesce("cursor".position, :trimmed_position)
    );

-- name: any_ready_in_order
-- The same for an ordered queue: shards with a message in flight or waiting for a retry are blocked.
with blocked as (
    select lane.shard from penstock_lease as lease join penstock_lane as lane using (lane_id)
    where lease.group_id = :group_id
    union
    select lane.shard from penstock_tracked as tracked join penstock_lane as lane using (lane_id)
    where tracked.group_id = :group_id and tracked.state in ('leased', 'held')
)
select exists (
        select 1 from penstock_tracked as tracked join penstock_lane as lane using (lane_id)
        where tracked.group_id = :group_id and tracked.state = 'ready' and lane.shard not in (select shard from blocked)
    )
    or exists (
        select 1
        from penstock_lane_end as lane
        left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = lane.lane_id
        where lane.queue_id = :queue_id and lane.priority >= 0
            and lane.last_position > coalesce("cursor".position, :trimmed_position)
            and lane.shard not in (select shard from blocked)
    );

-- name: last_state
-- The last state of the message at a position in a group.
select audit.state, audit.reason
from penstock_audit as audit
where audit.last_position between :position and :position + :span and audit.first_position <= :position
    and audit.queue_id = :queue_id and (audit.group_id is null or audit.group_id = :group_id)
order by audit.entry_id desc
limit 1;

-- name: was_held
-- Whether a message in the log was held first.
select log.available_at is not null or lane.priority < 0
from penstock_log as log
join penstock_lane as lane using (lane_id)
where log.position = :position;

-- name: archive_edge
-- The last position of the queue that can have ended in the group.
select greatest(
    coalesce((select max(position) from penstock_cursor where group_id = :group_id), 0),
    coalesce((select max(position) from penstock_skip where group_id = :group_id), 0),
    coalesce((select max(last_position) from penstock_lane_end where queue_id = :queue_id and priority < 0), 0)
) + 1;

-- name: kept_letters
-- Messages that only their dead letter keeps, latest first.
select dead.position
from penstock_dead_letter as dead
where dead.group_id = :group_id and dead.position < :before and dead.position <= :trimmed_position
order by dead.position desc
limit :limit;

-- name: skipped_before
-- Messages that ended in the group before its cursor reached them, last one first.
select position
from penstock_skip
where group_id = :group_id and position < :before and position > :trimmed_position
order by position desc
limit :limit;

-- name: read_lanes
-- All lanes of a queue, and the position up to which their messages may have ended in the group.
select lane.lane_id,
    case when lane.priority < 0 then :before - 1 else least(:before - 1, coalesce("cursor".position, :trimmed_position)) end
from penstock_lane as lane
left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = lane.lane_id
where lane.queue_id = :queue_id;
