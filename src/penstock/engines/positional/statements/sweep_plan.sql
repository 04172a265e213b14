-- name: queues_to_sweep
-- All queues that ever had a message, each with the time of its oldest mark.
select queue_id, name, policy, held, trimmed_position, created_at, primary_group_id,
    (select mark.at from penstock_mark as mark where mark.queue_id = penstock_queue.queue_id order by mark.at limit 1)
from penstock_queue
where held > 0 or exists (select 1 from penstock_lane as lane where lane.queue_id = penstock_queue.queue_id);

-- name: groups_to_sweep
-- All groups of these queues: outcomes, cursor, tracked messages, next lease end, and the oldest dead letter. With
-- `limit 1` instead of `exists` and `min`, for which the optimizer reads all rows of the group.
select queue_id, reader.group_id,
    reader.succeeded + reader.rejected + reader.failed + reader.lease_expired + reader.expired + reader.cancelled,
    coalesce(reader.stream_position, 0) + (
        select coalesce(sum("cursor".position), 0) from penstock_cursor as "cursor" where "cursor".group_id = reader.group_id
    ),
    coalesce((select 1 from penstock_tracked as tracked where tracked.group_id = reader.group_id limit 1), 0),
    (
        select min("cursor".lease_ends_at) from penstock_cursor as "cursor"
        where "cursor".group_id = reader.group_id
            and (select 1 from penstock_lease as lease where lease.group_id = reader.group_id limit 1) = 1
    ),
    (
        select dead.died_at from penstock_dead_letter as dead where dead.group_id = reader.group_id
        order by dead.died_at limit 1
    )
from penstock_group as reader
join penstock_queue as queue using (queue_id)
where queue.held > 0 or exists (select 1 from penstock_lane as lane where lane.queue_id = queue.queue_id);

-- name: expiring_queues
-- Queues with messages that expired since unread ones were last checked.
select distinct lane.queue_id
from penstock_log as log
join penstock_lane as lane using (lane_id)
where log.expires_at > (select coalesce(min(expired_upto), 0) from penstock_group) and log.expires_at <= :now
union
select distinct lane.queue_id
from penstock_log as log
join penstock_lane as lane using (lane_id)
where log.deadline_at > (select coalesce(min(expired_upto), 0) from penstock_group) and log.deadline_at <= :now;

-- name: due_schedules
-- Schedules with a due tick.
select name, cron, timezone, queue, message, catch_up, paused, next_at, last_at
from penstock_schedule
where next_at <= :now
order by next_at;
