-- name: open_send
-- All that a send begins with: the queue, and its first lane, which most messages go to.
select queue.queue_id, queue.name, queue.policy, queue.held, queue.trimmed_position, queue.created_at,
    queue.primary_group_id,
    (
        select lane.lane_id from penstock_lane as lane
        where lane.queue_id = queue.queue_id and lane.priority = 0 and lane.shard = 0
    )
from penstock_queue as queue
where queue.name = ?;

-- name: find_lane
-- The lane of a priority and a shard.
select lane_id from penstock_lane where queue_id = :queue_id and priority = :priority and shard = :shard;

-- name: make_lane
-- A lane exists from its first message.
insert into penstock_lane (queue_id, priority, shard) values (:queue_id, :priority, :shard)
returning lane_id;

-- name: append_plain
-- (new) -> ready, for a message that is nothing but a payload, perhaps with an end.
insert into penstock_log (position, lane_id, created_at, content_type, expires_at, payload) values (?, ?, ?, ?, ?, ?);

-- name: append_alike
-- The same for messages that differ in nothing but their payload. Rows of an array are counted from 1.
insert into penstock_log (position, lane_id, created_at, content_type, expires_at, payload)
select ?1 + rowid, ?2, ?3, ?4, ?5, value from carray(?6);

-- name: append
-- (new) or held -> ready.
insert into penstock_log (
    position, lane_id, created_at, id, content_type, headers, expires_at, deadline_at, address, key, batch_id,
    created_by, available_at, payload
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: lengthen_run
-- The stretch goes on where the lane's last one ended.
update penstock_run set last_position = ? where lane_id = ? and last_position = ?;

-- name: begin_run
-- A new stretch of the lane.
insert into penstock_run (lane_id, last_position, first_position, before)
select lane_id, :last, :first, sent from penstock_lane_end where lane_id = :lane_id;

-- name: be_careful
-- The lane has messages that need a second look.
update penstock_lane set careful = 1 where lane_id = :lane_id and careful = 0;

-- name: hold
-- (new) -> held.
insert into penstock_held (
    queue_id, priority, shard, available_at, waiting, id, created_at, content_type, headers, expires_at, deadline_at,
    address, key, batch_id, created_by, payload
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
returning held_id;

-- name: identify
-- Remember a chosen id.
insert into penstock_identity (queue_id, id, position, held_id) values (:queue_id, :id, :position, :held_id)
on conflict (queue_id, id) do update set position = excluded.position, held_id = excluded.held_id;

-- name: find_identity
-- Where the message with a chosen id is.
select position, held_id from penstock_identity where queue_id = :queue_id and id = :id;

-- name: find_made
-- The message at the position that an id names, if the queue is the same.
select log.created_at
from penstock_log as log
join penstock_lane as lane using (lane_id)
where log.position = :position and log.id is null and lane.queue_id = :queue_id;

-- name: find_address
-- The newest message of an address.
select id, position, outcome, reason from penstock_address where queue_id = :queue_id and address = :address;

-- name: is_over
-- Whether the holder of an address has expired, and only waits for a sweep to notice.
select coalesce(
    (
        select case when tracked.position is null then log.expires_at else tracked.expires_at end <= :now
        from penstock_log as log
        left join penstock_tracked as tracked on tracked.group_id = :group_id and tracked.position = log.position
        where log.position = :position
    ),
    (
        select held.expires_at <= :now
        from penstock_identity as identity
        join penstock_held as held using (held_id)
        where identity.queue_id = :queue_id and identity.id = :id
    ),
    0
);

-- name: take_address
-- The address belongs to this message now.
insert into penstock_address (queue_id, address, id, position) values (:queue_id, :address, :id, :position)
on conflict (queue_id, address) do update
set id = excluded.id, position = excluded.position, outcome = null, reason = null, ended_at = null;

-- name: join_batch
-- The message must end before its batch can.
insert into penstock_member (position, batch_id) values (:position, :batch_id);

-- name: count_members
-- The batch has more messages.
update penstock_batch set total = total + :count where batch_id = :batch_id;
