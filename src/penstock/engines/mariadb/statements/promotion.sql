-- name: take_held
-- Remove and return held messages.
select held_id, priority, shard, id, created_at, content_type, headers, expires_at, deadline_at, address, `key`, batch_id,
    created_by, available_at, payload
from penstock_held force index (primary)
where held_id in (:values);
delete held from penstock_held as held force index (primary) where held.held_id in (:values);
