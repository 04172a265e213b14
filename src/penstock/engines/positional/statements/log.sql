-- name: find_lane
-- The lane of a priority and a shard.
select lane_id from penstock_lane where queue_id = :queue_id and priority = :priority and shard = :shard;

-- name: append_message
-- (new) or held -> ready.
insert into penstock_log (
    position, lane_id, created_at, id, content_type, headers, expires_at, deadline_at, address, "key", batch_id,
    created_by, available_at, payload
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: mark_lane_checked
-- Mark the lane as having messages that need checks.
update penstock_lane set careful = 1 where lane_id = :lane_id and careful = 0;

-- name: put_identity
-- Record a chosen id.
insert into penstock_identity (queue_id, id, position) values (?, ?, ?)
on conflict (queue_id, id) do update set position = excluded.position, held_id = null;

-- name: find_identities
-- Which of some ids were chosen.
select id from penstock_identity /*! force index (primary) */ where queue_id = :queue_id and id in (:values);

-- name: find_identity
-- Where the message with a chosen id is.
select position, held_id from penstock_identity where queue_id = :queue_id and id = :id;

-- name: find_made_id
-- The message at the position that an id contains, if it belongs to the queue.
select log.created_at
from penstock_log as log
join penstock_lane as lane using (lane_id)
where log.position = :position and log.id is null and lane.queue_id = :queue_id;
