-- name: message
-- One message of the log.
select log.position, lane.priority, log.created_at, log.id, log.content_type, log.headers, log.expires_at,
    log.deadline_at, log.address, log.key, batch.name, log.created_by, log.available_at, log.payload
from penstock_log as log
join penstock_lane as lane using (lane_id)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where log.position = :position;

-- name: held_message
-- One message that is not in the log yet.
select null, held.priority, held.created_at, held.id, held.content_type, held.headers, held.expires_at,
    held.deadline_at, held.address, held.key, batch.name, held.created_by, held.available_at, held.payload
from penstock_held as held
left join penstock_batch as batch on batch.batch_id = held.batch_id
where held.held_id = :held_id;

-- name: browse
-- Messages at a stretch of positions, in order.
select log.position, lane.priority, log.created_at, log.id, log.content_type, log.headers, log.expires_at,
    log.deadline_at, log.address, log.key, batch.name, log.created_by, log.available_at, log.payload
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

-- name: peek_lane
-- Unread messages of a lane.
select log.position, :priority
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

-- name: busy_shards
-- Shards of an ordered queue that are blocked, and from which position on: all of it while something is in flight, else
-- what comes after a message that waits for its next attempt.
select shard, min(position) from (
    select lane.shard, 0 as position
    from penstock_lease as lease join penstock_lane as lane using (lane_id)
    where lease.group_id = :group_id and lease.ends_at > :now
    union all
    select lane.shard, case when tracked.state = 'leased' then 0 else tracked.position end
    from penstock_tracked as tracked join penstock_lane as lane using (lane_id)
    where tracked.group_id = :group_id and tracked.state in ('leased', 'held') and tracked.until_at > :now
)
group by shard;

-- name: shard_at
-- The shard of a message.
select lane.shard from penstock_log as log join penstock_lane as lane using (lane_id) where log.position = :position;

-- name: next_due
-- The next moment at which something of the group may become ready by itself.
select min(at) from (
    select min(available_at) as at from penstock_held where queue_id = :queue_id and waiting = 0
    union all
    select min(until_at) from penstock_tracked where group_id = :group_id and state = 'held'
    union all
    select min(until_at) from penstock_tracked where group_id = :group_id and state = 'leased'
    union all
    select min(lease_ends_at) from penstock_cursor
    where group_id = :group_id and exists (select 1 from penstock_lease where group_id = :group_id)
);

-- name: any_ready
-- Whether the group could receive something that is ready, for a queue that is not ordered.
select exists (select 1 from penstock_tracked where group_id = :group_id and state = 'ready')
    or exists (
        select 1
        from penstock_lane_end as lane
        left join penstock_cursor as cursor on cursor.group_id = :group_id and cursor.lane_id = lane.lane_id
        where lane.queue_id = :queue_id and lane.priority >= 0
            and lane.last_position > coalesce(cursor.position, :trimmed_position)
    );

-- name: any_ready_in_order
-- The same for an ordered queue: not in a shard where something is in flight or waits for a retry.
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
        left join penstock_cursor as cursor on cursor.group_id = :group_id and cursor.lane_id = lane.lane_id
        where lane.queue_id = :queue_id and lane.priority >= 0
            and lane.last_position > coalesce(cursor.position, :trimmed_position)
            and lane.shard not in (select shard from blocked)
    );

-- name: unread_by_nobody
-- What is in the log and not over. What is over is found by its time: the rest is never read.
select
    (
        select coalesce(sum(lane.sent - lane.trimmed), 0)
        from penstock_lane_end as lane where lane.queue_id = :queue_id and lane.priority >= 0
    ) - (
        select count(*)
        from penstock_log as log join penstock_lane as lane using (lane_id)
        where log.expires_at <= :now and log.position > :trimmed_position
            and lane.queue_id = :queue_id and lane.priority >= 0
    );

-- name: group_counts
-- One group's counts, from counters and from tables that stay small.
select
    reader.succeeded, reader.rejected, reader.failed, reader.lease_expired, reader.expired, reader.cancelled,
    (
        select coalesce(sum(lane.sent - coalesce(cursor.passed, lane.trimmed)), 0)
        from penstock_lane_end as lane
        left join penstock_cursor as cursor on cursor.group_id = reader.group_id and cursor.lane_id = lane.lane_id
        where lane.queue_id = reader.queue_id and lane.priority >= 0
    ),
    (select count(*) from penstock_skip as skip where skip.group_id = reader.group_id),
    (
        select coalesce(sum(lease.last_position - lease.first_position + 1), 0)
        from penstock_lease as lease where lease.group_id = reader.group_id
    ),
    (select count(*) from penstock_tracked as one where one.group_id = reader.group_id and one.state = 'leased'),
    (select count(*) from penstock_tracked as one where one.group_id = reader.group_id and one.state = 'ready'),
    (select count(*) from penstock_tracked as one where one.group_id = reader.group_id and one.state = 'held'),
    (select count(*) from penstock_dead_letter as dead where dead.group_id = reader.group_id),
    (select count(*) from penstock_consumer as consumer where consumer.group_id = reader.group_id)
from penstock_group as reader
where reader.group_id = :group_id;

-- name: oldest_ready
-- When the oldest message that the group could receive was sent.
select min(created_at) from (
    select log.created_at
    from (
        select min(max(run.first_position, coalesce(cursor.position, :trimmed_position) + 1)) as position
        from penstock_lane as lane
        left join penstock_cursor as cursor on cursor.group_id = :group_id and cursor.lane_id = lane.lane_id
        join penstock_run as run
            on run.lane_id = lane.lane_id and run.last_position = (
                select min(next.last_position) from penstock_run as next
                where next.lane_id = lane.lane_id
                    and next.last_position > coalesce(cursor.position, :trimmed_position)
            )
        where lane.queue_id = :queue_id and lane.priority >= 0
    ) as unread
    join penstock_log as log using (position)
    union all
    select log.created_at
    from (
        select min(position) as position from penstock_tracked where group_id = :group_id and state = 'ready'
    ) as retry
    join penstock_log as log using (position)
);

-- name: sent_count
-- How many messages of the queue come after a position, for a stream.
select coalesce(sum(run.last_position - max(run.first_position, :after + 1) + 1), 0)
from penstock_lane as lane
join penstock_run as run using (lane_id)
where lane.queue_id = :queue_id and lane.priority >= 0 and run.last_position > :after;

-- name: ended_count
-- How many messages of the queue have ended after an entry of the trail, for a stream that follows it.
select coalesce(sum(last_position - first_position + 1 - (
        select count(*) from penstock_removed as gone
        where gone.queue_id = :queue_id and gone.position between first_position and last_position
    )), 0)
from penstock_audit
where entry_id > :after and queue_id = :queue_id and state not in ('held', 'ready', 'leased') and first_position > 0;

-- name: trail
-- What happened to the message at a position, in order.
select audit.at, audit.event, audit.state, audit.by, reader.name, audit.reason, audit.attempt
from penstock_audit as audit
left join penstock_group as reader using (group_id)
where audit.last_position between :position and :position + :span and audit.first_position <= :position
    and audit.queue_id = :queue_id
order by audit.entry_id;

-- name: last_state
-- The latest step of the message at a position in a group.
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

-- name: cursor_of
-- How far a group has read the lane of a message, and whether it may read that lane at all.
select coalesce(cursor.position, :trimmed_position), lane.priority, lane.shard
from penstock_log as log
join penstock_lane as lane using (lane_id)
left join penstock_cursor as cursor on cursor.group_id = :group_id and cursor.lane_id = log.lane_id
where log.position = :position;

-- name: lease_over
-- The lease of a group that covers a position.
select token, consumer, ends_at
from penstock_lease
where group_id = :group_id and first_position <= :position and last_position = (
    select min(last_position) from penstock_lease where group_id = :group_id and last_position >= :position
);

-- name: dead_letter_at
-- How a message ended without success.
select outcome, reason, attempts, died_at
from penstock_dead_letter
where group_id = :group_id and position = :position;

-- name: archive_edge
-- The latest position of the queue that can have ended in the group: what lies beyond is not worth looking at.
select max(
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

-- name: held_state
-- Why a held message waits.
select held.available_at, held.waiting, held.created_at, held.created_by, held.expires_at, batch.name
from penstock_held as held
left join penstock_batch as batch on batch.batch_id = held.batch_id
where held.held_id = :held_id;
