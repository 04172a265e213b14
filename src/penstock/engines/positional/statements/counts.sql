-- name: group_counts
-- One group's counts, from counters and small tables.
select
    reader.succeeded, reader.rejected, reader.failed, reader.lease_expired, reader.expired, reader.cancelled,
    reader.undone_succeeded, reader.undone_rejected, reader.undone_failed, reader.undone_lease_expired,
    reader.undone_expired, reader.undone_cancelled,
    reader.failed_attempts,
    (
        select coalesce(sum(lane.sent - coalesce("cursor".passed, lane.trimmed)), 0)
        from penstock_lane_end as lane
        left join penstock_cursor as "cursor" on "cursor".group_id = reader.group_id and "cursor".lane_id = lane.lane_id
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
-- Since when the longest-waiting message has been ready: since it was sent, became due, or its retry became due.
select min(ready_at) from (
    select coalesce(log.available_at, log.created_at) as ready_at
    from (
        select min(greatest(run.first_position, coalesce("cursor".position, :trimmed_position) + 1)) as position
        from penstock_lane as lane
        left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = lane.lane_id
        join penstock_run as run
            on run.lane_id = lane.lane_id and run.last_position = (
                select next.last_position from penstock_run as next
                where next.lane_id = lane.lane_id
                    and next.last_position > coalesce("cursor".position, :trimmed_position)
                order by next.last_position limit 1
            )
        where lane.queue_id = :queue_id and lane.priority >= 0
    ) as unread
    join penstock_log as log using (position)
    union all
    select min(until_at) from penstock_tracked where group_id = :group_id and state = 'ready'
) as waiting;

-- name: first_unread
-- The position of the first message that the group has not read; null when there is none.
select min(greatest(run.first_position, coalesce("cursor".position, :trimmed_position) + 1))
from penstock_lane as lane
left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = lane.lane_id
join penstock_run as run
    on run.lane_id = lane.lane_id and run.last_position = (
        select next.last_position from penstock_run as next
        where next.lane_id = lane.lane_id
            and next.last_position > coalesce("cursor".position, :trimmed_position)
        order by next.last_position limit 1
    )
where lane.queue_id = :queue_id and lane.priority >= 0;

-- name: count_unread
-- Number of messages in the log that have not expired. Expired ones are found by their time; the others are not read.
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

-- name: count_sent
-- Number of messages of the queue after a position, for a stream.
select coalesce(sum(run.last_position - greatest(run.first_position, :after + 1) + 1), 0)
from penstock_lane as lane
join penstock_run as run using (lane_id)
where lane.queue_id = :queue_id and lane.priority >= 0 and run.last_position > :after;

-- name: count_ended
-- Number of messages of the queue that ended after an audit entry, for a stream of the audit.
select coalesce(sum(last_position - first_position + 1 - (
        select count(*) from penstock_removed as gone
        where gone.queue_id = :queue_id and gone.position between first_position and last_position
    )), 0)
from penstock_audit
where entry_id > :after and queue_id = :queue_id and state not in ('held', 'ready', 'leased') and first_position > 0;
