-- name: count_in_flight
-- Number of messages of a receive in flight.
select coalesce((
        select sum(last_position - first_position + 1) from penstock_lease
        where group_id = :group_id and token = :token
    ), 0)
    + (select count(*) from penstock_tracked where group_id = :group_id and token = :token and state = 'leased');

-- name: extend_tracked
-- leased -> leased until later.
update penstock_tracked set until_at = :ends_at where group_id = :group_id and position = :position;

-- name: leases_between
-- Number of messages of a receive in leased ranges between two positions, the width of the widest range, and whether
-- any may have an address or a batch.
select coalesce(sum(lease.last_position - lease.first_position + 1), 0),
    max(lease.last_position - lease.first_position + 1), max(lane.careful)
from penstock_lease as lease
join penstock_lane as lane using (lane_id)
where lease.group_id = :group_id and lease.last_position between :first and :last
    and lease.first_position >= :first and lease.token = :token and lease.ends_at > :now;

-- name: drop_leases
-- Delete the ranges of a receive between two positions.
delete from penstock_lease
where group_id = :group_id and last_position between :first and :last and token = :token;

-- name: extend_lease
-- leased -> leased until later, for a whole range.
update penstock_lease set ends_at = :ends_at where group_id = :group_id and last_position = :last;

-- name: earlier_in_flight
-- Whether an earlier message of the same receive and shard is still in flight, or has lapsed and will be retried.
select 1
from penstock_lease as lease
join penstock_lane as lane using (lane_id)
where lease.group_id = :group_id and lease.token = :token
    and lane.shard = (select shard from penstock_lane where lane_id = :lane_id)
    and (lane.priority < :priority or (lane.priority = :priority and lease.first_position < :position))
union all
select 1
from penstock_tracked as tracked
join penstock_lane as lane using (lane_id)
where tracked.group_id = :group_id and tracked.token = :token and tracked.state = 'leased'
    and lane.shard = (select shard from penstock_lane where lane_id = :lane_id)
    and (tracked.priority < :priority or (tracked.priority = :priority and tracked.position < :position))
limit 1;

-- name: later_in_flight
-- Other messages of a receive and shard in flight that were handed out behind one.
select lease.first_position, lease.last_position, lane.priority
from penstock_lease as lease
join penstock_lane as lane using (lane_id)
where lease.group_id = :group_id and lease.token = :token
    and lane.shard = (select shard from penstock_lane where lane_id = :lane_id)
    and (lane.priority > :priority or (lane.priority = :priority and lease.last_position > :position))
union all
select tracked.position, tracked.position, tracked.priority
from penstock_tracked as tracked
join penstock_lane as lane using (lane_id)
where tracked.group_id = :group_id and tracked.token = :token and tracked.state = 'leased'
    and lane.shard = (select shard from penstock_lane where lane_id = :lane_id)
    and (tracked.priority > :priority or (tracked.priority = :priority and tracked.position > :position))
order by 3, 1;

-- name: settled_before
-- The state that the same token gave a message earlier, for a repeated settlement.
select state
from penstock_audit
where last_position between :position and :position + :span and first_position <= :position
    and group_id = :group_id and token = :token and event = :event;
