-- name: lapsed_leases
-- Leased ranges that have lapsed, or belong to a removed consumer.
select token, first_position, last_position, group_id, lane_id, consumer, ends_at
from penstock_lease
where group_id = :group_id and (ends_at <= :now or consumer = :consumer)
order by last_position;

-- name: update_next_lease_end
-- Update when the next lease ends. Acks do not maintain it, so it may be earlier than any lease.
update penstock_cursor
set lease_ends_at = (
    select min(lease.ends_at) from penstock_lease as lease
    where lease.group_id = penstock_cursor.group_id and lease.lane_id = penstock_cursor.lane_id
)
where group_id = :group_id and lease_ends_at <= :now;

-- name: lapsed_tracked
-- The same for tracked messages.
select position, lane_id, priority, attempt, expires_at, deadline_at, batch_id,
    coalesce((
        select batch.state in ('cancelling', 'cancelled')
        from penstock_batch as batch where batch.batch_id = penstock_tracked.batch_id
    ), 0),
    token, consumer, reason
from penstock_tracked
where group_id = :group_id and state = 'leased' and (until_at <= :now or consumer = :consumer)
order by position;

-- name: lane_shards
-- The shard of each lane of a queue.
select lane_id, shard from penstock_lane where queue_id = :queue_id;

-- name: expired_tracked
-- Retries, waiting or ready, that have expired.
select position, attempt, 'expire'
from penstock_tracked
where group_id = :group_id and state <> 'leased' and expires_at <= :now
union all
select position, attempt, 'deadline'
from penstock_tracked
where group_id = :group_id and state <> 'leased' and :at_most_once and deadline_at <= :now
    and (expires_at is null or expires_at > :now)
order by position;
