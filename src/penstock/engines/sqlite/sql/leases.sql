-- name: in_flight
-- What a group has in flight after a position, of one consumer or of all.
select log.position, log.created_at, log.id, lease.token, lease.consumer, 1, lease.ends_at
from penstock_lease as lease
join penstock_log as log
    on log.position between max(lease.first_position, :after + 1) and lease.last_position
where lease.group_id = :group_id and lease.ends_at > :now and lease.last_position > :after
    and (:consumer is null or lease.consumer = :consumer)
union all
select log.position, log.created_at, log.id, tracked.token, tracked.consumer, tracked.attempt, tracked.until_at
from penstock_tracked as tracked
join penstock_log as log using (position)
where tracked.group_id = :group_id and tracked.state = 'leased' and tracked.until_at > :now
    and tracked.position > :after and (:consumer is null or tracked.consumer = :consumer)
order by 1
limit :limit;

-- name: in_flight_at
-- The lease of one message.
select log.position, log.created_at, log.id, lease.token, lease.consumer, 1, lease.ends_at
from (
    select * from penstock_lease
    where group_id = :group_id and last_position >= :position
    order by last_position
    limit 1
) as lease
join penstock_log as log on log.position = :position
where lease.first_position <= :position and lease.ends_at > :now
union all
select log.position, log.created_at, log.id, tracked.token, tracked.consumer, tracked.attempt, tracked.until_at
from penstock_tracked as tracked
join penstock_log as log using (position)
where tracked.group_id = :group_id and tracked.position = :position and tracked.state = 'leased'
    and tracked.until_at > :now;

-- name: reached
-- How far a group has read or was moved, over all lanes.
select max(
    coalesce((select max(position) from penstock_cursor where group_id = :group_id), 0),
    coalesce((select stream_position from penstock_group where group_id = :group_id), 0)
);
