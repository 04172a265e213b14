-- name: open_receive
-- What a receive needs first: the queue and a group (the named one, else the primary one), whether messages or retries
-- are due or leases have lapsed, whether retries are ready, whether the group has messages to skip, and whether
-- consumers were removed.
select queue.queue_id, queue.name, queue.policy, queue.held, queue.trimmed_position, queue.created_at,
    queue.primary_group_id,
    reader.group_id, reader.queue_id, reader.name, reader.stream_position, reader.used_at, reader.stream_table,
    exists (
        select 1 from penstock_held as held
        where held.queue_id = queue.queue_id and held.waiting = 0 and held.available_at <= ?3
    ),
    exists (
        select 1 from penstock_tracked as tracked
        where tracked.group_id = reader.group_id and tracked.state = 'held' and tracked.until_at <= ?3
    ),
    exists (
        select 1 from penstock_cursor as "cursor"
        where "cursor".group_id = reader.group_id and "cursor".lease_ends_at <= ?3
    )
    or exists (
        select 1 from penstock_tracked as tracked
        where tracked.group_id = reader.group_id and tracked.state = 'leased' and tracked.until_at <= ?3
    ),
    exists (
        select 1 from penstock_tracked as tracked
        where tracked.group_id = reader.group_id and tracked.state = 'ready'
    ),
    exists (select 1 from penstock_skip as skip where skip.group_id = reader.group_id),
    exists (select 1 from penstock_removed_consumer as removed where removed.group_id = reader.group_id)
from penstock_queue as queue
left join penstock_group as reader
    on reader.queue_id = queue.queue_id
    and reader.name = coalesce(
        ?2,
        (select first.name from penstock_group as first where first.group_id = queue.primary_group_id),
        json_extract(queue.policy, '$.primary_group'),
        'default'
    )
where queue.name = ?1;

-- name: unread_lanes
-- Lanes with messages that the group has not read, best priority first, with the next run of each and its latest token.
select /*! straight_join */ lane.lane_id, lane.priority, lane.shard, lane.careful,
    (
        select last.last_position from penstock_run as last where last.lane_id = lane.lane_id
        order by last.last_position desc limit 1
    ),
    coalesce("cursor".position, ?3), coalesce("cursor".passed, lane.trimmed),
    greatest(next.first_position, coalesce("cursor".position, ?3) + 1), next.last_position, coalesce("cursor".token, 0)
from penstock_lane as lane
left join penstock_cursor as "cursor" on "cursor".group_id = ?2 and "cursor".lane_id = lane.lane_id
cross join penstock_run as next
    on next.lane_id = lane.lane_id
    and next.last_position = (
        select unread.last_position from penstock_run as unread
        where unread.lane_id = lane.lane_id and unread.last_position > coalesce("cursor".position, ?3)
        order by unread.last_position limit 1
    )
where lane.queue_id = ?1 and lane.priority >= 0
order by lane.priority, lane.shard;

-- name: read_run
-- Messages of one run, as rows of a receipt.
select position, created_at, id, content_type, headers, expires_at, deadline_at, address, "key", null, created_by,
    payload, ?, 1, ?
from penstock_log
where position between ? and ?;

-- name: count_lane_messages
-- Number of messages of the lane between two positions. Later runs are not read: there may be millions.
select coalesce(sum(greatest(0, least(last_position, :upto) - greatest(first_position, :after + 1) + 1)), 0)
from penstock_run
where lane_id = :lane_id and last_position > :after
    and last_position <= (
        select coalesce(min(beyond.last_position), :upto) from penstock_run as beyond
        where beyond.lane_id = :lane_id and beyond.last_position >= :upto
    );

-- name: move_cursor
-- Move the group's cursor.
insert into penstock_cursor (group_id, lane_id, position, passed) values (?, ?, ?, ?)
on conflict (group_id, lane_id) do update set position = excluded.position, passed = excluded.passed;

-- name: lease_unread
-- Move the group's cursor past messages that were leased.
insert into penstock_cursor (group_id, lane_id, position, passed, lease_ends_at, token) values (?, ?, ?, ?, ?, ?)
on conflict (group_id, lane_id) do update
set position = excluded.position, passed = excluded.passed, token = greatest(token, excluded.token),
    lease_ends_at = least(coalesce(lease_ends_at, excluded.lease_ends_at), excluded.lease_ends_at);

-- name: ready_tracked
-- Retries that are ready, best priority first.
select position, priority, coalesce(token, 0)
from penstock_tracked
where group_id = :group_id and state = 'ready'
order by priority, position
limit :limit;

-- name: read_tracked
-- One retry, as a row of a receipt.
select log.position, log.created_at, log.id, log.content_type, log.headers, tracked.expires_at, tracked.deadline_at,
    log.address, log."key", batch.name, log.created_by, log.payload, tracked.priority, tracked.attempt + 1, :ends_at
from penstock_tracked as tracked
join penstock_log as log using (position)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where tracked.group_id = :group_id and tracked.position = :position;

-- name: touch_group
-- Record that the group was used; not on every call.
update penstock_group set used_at = :now where group_id = :group_id;

-- name: consumer_place
-- A registered consumer's index in birth order, and the number of consumers.
select
    (
        select count(*) from penstock_consumer as older
        where older.group_id = self.group_id and older.consumer_id < self.consumer_id
    ),
    (select count(*) from penstock_consumer as living where living.group_id = self.group_id)
from penstock_consumer as self
where self.group_id = :group_id and self.name = :name;

-- name: blocked_shards
-- Shards of an ordered queue that have a message in flight.
select lane.shard from penstock_lease as lease join penstock_lane as lane using (lane_id)
where lease.group_id = :group_id
union
select lane.shard from penstock_tracked as tracked join penstock_lane as lane using (lane_id)
where tracked.group_id = :group_id and tracked.state = 'leased';

-- name: tracked_in_order
-- The retries of an ordered queue, waiting or ready, in the order in which they come again.
select tracked.position, tracked.priority, lane.shard, tracked.state, coalesce(tracked.token, 0)
from penstock_tracked as tracked
join penstock_lane as lane using (lane_id)
where tracked.group_id = :group_id and tracked.state in ('held', 'ready')
order by tracked.priority, tracked.position;

-- name: lease_tracked
-- ready -> leased.
update penstock_tracked
set state = 'leased', attempt = attempt + 1, until_at = :ends_at, token = :token, consumer = :consumer
where group_id = :group_id and position = :position;
