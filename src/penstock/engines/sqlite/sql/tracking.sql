-- name: track
-- A message that the group looks after by itself from now on.
insert into penstock_tracked (
    group_id, position, lane_id, priority, state, attempt, until_at, expires_at, deadline_at, batch_id, token, consumer,
    reason
) values (
    :group_id, :position, :lane_id, :priority, :state, :attempt, :until_at, :expires_at, :deadline_at, :batch_id,
    :token, :consumer, :reason
)
on conflict (group_id, position) do update
set state = excluded.state, attempt = excluded.attempt, until_at = excluded.until_at,
    expires_at = excluded.expires_at, deadline_at = excluded.deadline_at, batch_id = excluded.batch_id,
    token = excluded.token, consumer = excluded.consumer, reason = excluded.reason;

-- name: find_tracked
-- One message of the group.
select position, lane_id, priority, state, attempt, until_at, expires_at, deadline_at, batch_id, token, consumer,
    reason
from penstock_tracked
where group_id = :group_id and position = :position;

-- name: forget
-- The message has ended in the group.
delete from penstock_tracked where group_id = :group_id and position = :position
returning attempt;

-- name: lease_tracked
-- ready -> leased.
update penstock_tracked
set state = 'leased', attempt = attempt + 1, until_at = :ends_at, token = :token, consumer = :consumer
where group_id = :group_id and position = :position;

-- name: extend_tracked
-- leased -> leased, longer.
update penstock_tracked set until_at = :ends_at where group_id = :group_id and position = :position;

-- name: skip
-- The group's cursor passes over this message when it comes to it.
insert into penstock_skip (group_id, position) values (:group_id, :position);

-- name: unskip
-- The cursor of a lane has passed over. Positions in between may belong to other lanes, whose cursors have not.
delete from penstock_skip
where group_id = :group_id and position between :first and :last
    and (select log.lane_id from penstock_log as log where log.position = penstock_skip.position) = :lane_id
returning position;

-- name: make_lease
-- ready -> leased, for first attempts in a row.
insert into penstock_lease (token, first_position, last_position, group_id, lane_id, consumer, ends_at)
values (?, ?, ?, ?, ?, ?, ?);

-- name: leases_of
-- What is left of a receive from one position to another, in order.
select token, first_position, last_position, group_id, lane_id, consumer, ends_at,
    (select lane.careful from penstock_lane as lane where lane.lane_id = penstock_lease.lane_id)
from penstock_lease
where group_id = ?1 and last_position >= ?2 and last_position <= (
        select coalesce(min(beyond.last_position), ?3) from penstock_lease as beyond
        where beyond.group_id = ?1 and beyond.last_position >= ?3
    )
    and token = ?4
order by last_position;

-- name: lease_at
-- The only range of a group that may hold a position.
select token, first_position, last_position, group_id, lane_id, consumer, ends_at,
    (select lane.careful from penstock_lane as lane where lane.lane_id = penstock_lease.lane_id)
from penstock_lease
where group_id = ? and last_position >= ?
order by last_position
limit 1;

-- name: leases_between
-- How many messages of a receive are in flight in ranges that lie between two positions, how many the widest of these
-- ranges has, and whether any may have an owner.
select coalesce(sum(lease.last_position - lease.first_position + 1), 0),
    max(lease.last_position - lease.first_position + 1), max(lane.careful)
from penstock_lease as lease
join penstock_lane as lane using (lane_id)
where lease.group_id = :group_id and lease.last_position between :first and :last
    and lease.first_position >= :first and lease.token = :token and lease.ends_at > :now;

-- name: drop_leases
-- The ranges of a receive between two positions are no longer in flight.
delete from penstock_lease
where group_id = :group_id and last_position between :first and :last and token = :token;

-- name: drop_lease
-- A range is no longer in flight.
delete from penstock_lease where group_id = ? and last_position = ?;

-- name: extend_lease
-- leased -> leased, longer, for a whole range.
update penstock_lease set ends_at = :ends_at where group_id = :group_id and last_position = :last;

-- name: in_range
-- What a decision needs to know about messages in flight.
select log.position, log.lane_id, lane.priority, log.expires_at, log.deadline_at, log.batch_id,
    batch.state in ('cancelling', 'cancelled') as batch_cancelled
from penstock_log as log
join penstock_lane as lane using (lane_id)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where log.position between :first and :last
order by log.position;

-- name: is_cancelled
-- Whether a batch was cancelled.
select state in ('cancelling', 'cancelled') from penstock_batch where batch_id = :batch_id;

-- name: ahead
-- Whether something of the same receive and shard was handed out before a message and is still in flight, or its lease
-- has lapsed and it will be tried again.
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

-- name: in_flight_of
-- How many messages of a receive are in flight.
select coalesce((
        select sum(last_position - first_position + 1) from penstock_lease
        where group_id = :group_id and token = :token
    ), 0)
    + (select count(*) from penstock_tracked where group_id = :group_id and token = :token and state = 'leased');

-- name: behind
-- What else of a receive and a shard is in flight behind a position.
select lease.first_position, lease.last_position, null
from penstock_lease as lease
join penstock_lane as lane using (lane_id)
where lease.group_id = :group_id and lease.last_position > :position and lease.token = :token
    and lane.shard = (select shard from penstock_lane where lane_id = :lane_id)
union all
select tracked.position, tracked.position, tracked.attempt
from penstock_tracked as tracked
join penstock_lane as lane using (lane_id)
where tracked.group_id = :group_id and tracked.token = :token and tracked.state = 'leased'
    and tracked.position > :position
    and lane.shard = (select shard from penstock_lane where lane_id = :lane_id)
order by 1;
