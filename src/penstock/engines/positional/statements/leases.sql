-- name: put_tracked
-- Track a message in the group.
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
-- One tracked message of the group.
select position, lane_id, priority, state, attempt, until_at, expires_at, deadline_at, batch_id, token, consumer,
    reason
from penstock_tracked
where group_id = :group_id and position = :position;

-- name: skip
-- Make the group's cursor skip the message.
insert into penstock_skip (group_id, position) values (:group_id, :position);

-- name: make_lease
-- ready -> leased, for a range of first attempts.
insert into penstock_lease (token, first_position, last_position, group_id, lane_id, consumer, ends_at)
values (?, ?, ?, ?, ?, ?, ?);

-- name: leases_of
-- Ranges of a receive that are still leased between two positions, in order.
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
-- The only range of a group that may contain a position.
select token, first_position, last_position, group_id, lane_id, consumer, ends_at,
    (select lane.careful from penstock_lane as lane where lane.lane_id = penstock_lease.lane_id)
from penstock_lease
where group_id = ? and last_position >= ?
order by last_position
limit 1;

-- name: drop_lease
-- Delete a leased range.
delete from penstock_lease where group_id = ? and last_position = ?;

-- name: messages_in_flight
-- The columns of messages in flight that a decision needs.
select log.position, log.lane_id, lane.priority, log.expires_at, log.deadline_at, log.batch_id,
    batch.state in ('cancelling', 'cancelled') as batch_cancelled
from penstock_log as log
join penstock_lane as lane using (lane_id)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where log.position between :first and :last
order by log.position;

-- name: is_batch_cancelled
-- Whether a batch was cancelled.
select state in ('cancelling', 'cancelled') from penstock_batch where batch_id = :batch_id;

-- name: leases_of_group
-- Messages of a group in flight after a position, of one consumer or of all.
select log.position, log.created_at, log.id, lease.token, lease.consumer, 1, lease.ends_at
from penstock_lease as lease
join penstock_log as log
    on log.position between greatest(lease.first_position, :after + 1) and lease.last_position
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

-- name: lease_of_message
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

-- name: reached_position
-- The last position that a group has read or was moved to, over all lanes.
select greatest(
    coalesce((select max(position) from penstock_cursor where group_id = :group_id), 0),
    coalesce((select stream_position from penstock_group where group_id = :group_id), 0)
);
