-- name: open_send
-- What a send needs first: the queue and its first lane, which most messages go to.
select queue.queue_id, queue.name, queue.policy, queue.held, queue.trimmed_position, queue.created_at,
    queue.primary_group_id,
    (
        select lane.lane_id from penstock_lane as lane
        where lane.queue_id = queue.queue_id and lane.priority = 0 and lane.shard = 0
    )
from penstock_queue as queue
where queue.name = ?
for update;

-- name: append_plain
-- (new) -> ready for a plain message, perhaps with an expiry.
insert into penstock_log (position, lane_id, created_at, content_type, expires_at, payload) values (?, ?, ?, ?, ?, ?);

-- name: hold_message
-- (new) -> held.
insert into penstock_held (
    queue_id, priority, shard, available_at, waiting, id, created_at, content_type, headers, expires_at, deadline_at,
    address, "key", batch_id, created_by, payload
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: last_held
-- The greatest number of a held message.
select coalesce(max(held_id), 0) from penstock_held;

-- name: identify_held
-- Record the ids of the queue's messages that are held since.
insert into penstock_identity (queue_id, id, held_id)
select queue_id, id, held_id from penstock_held /*! force index (primary) */ where held_id > :after and queue_id = :queue_id
on conflict (queue_id, id) do update set position = null, held_id = excluded.held_id;

-- name: join_batch
-- Add the message to its batch.
insert into penstock_member (position, batch_id) values (:position, :batch_id);

-- name: count_members
-- Add to the number of messages of the batch.
update penstock_batch set total = total + :count where batch_id = :batch_id;
