-- name: expired_unread
-- Messages of a queue that expired since the last sweep and that a group has not read.
select /*! straight_join */ log.position, 'expire'
from penstock_log as log
cross join penstock_lane as lane using (lane_id)
left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = log.lane_id
where log.expires_at > :since and log.expires_at <= :now
    and lane.queue_id = :queue_id and lane.priority >= 0
    and log.position > coalesce("cursor".position, :trimmed_position)
    and not exists (select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position)
order by log.position;

-- name: overdue_unread
-- The same for the deadlines of at_most_once queues.
select /*! straight_join */ log.position, 'deadline'
from penstock_log as log
cross join penstock_lane as lane using (lane_id)
left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = log.lane_id
where log.deadline_at > :since and log.deadline_at <= :now
    and lane.queue_id = :queue_id and lane.priority >= 0
    and log.position > coalesce("cursor".position, :trimmed_position)
    and not exists (select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position)
order by log.position;

-- name: expired_upto
-- Up to when expired unread messages of a group were handled.
select expired_upto from penstock_group where group_id = :group_id;

-- name: set_expired_upto
-- Not updated by every sweep: checking the last minute again is cheaper than a commit.
update penstock_group set expired_upto = :now where group_id = :group_id;

-- name: expired_held
-- Held messages that have expired.
select held_id, 'expire' from penstock_held where queue_id = :queue_id and expires_at <= :now
order by held_id;

-- name: overdue_held
-- The same for the deadlines of at_most_once queues.
select held_id, 'deadline' from penstock_held
where queue_id = :queue_id and deadline_at <= :now and (expires_at is null or expires_at > :now)
order by held_id;
