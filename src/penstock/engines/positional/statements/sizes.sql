-- name: sizes_of_retries
-- Payload sizes of what a receive delivers besides unread messages: retries that are ready or due, lapsed leases, held
-- messages that are due.
select length(log.payload)
from penstock_tracked as tracked join penstock_log as log using (position)
where tracked.group_id = :group_id and (tracked.state = 'ready' or tracked.until_at <= :now)
union all
select length(log.payload)
from penstock_lease as lease
join penstock_log as log on log.position between lease.first_position and lease.last_position
where lease.group_id = :group_id and lease.ends_at <= :now and exists (
    select 1 from penstock_cursor as "cursor" where "cursor".group_id = :group_id and "cursor".lease_ends_at <= :now
)
union all
select length(payload) from penstock_held
where queue_id = :queue_id and waiting = 0 and available_at <= :now
limit :limit;

-- name: places
-- Position, time and payload size of the messages of a range that have not expired.
select position, created_at, length(payload) from penstock_log
where position between :first and :last and (expires_at is null or expires_at > :now);
