-- name: take_held
-- Remove and return held messages.
delete from penstock_held where held_id in (select value from carray(:values))
returning held_id, priority, shard, id, created_at, content_type, headers, expires_at, deadline_at, address, key, batch_id,
    created_by, available_at, payload;
