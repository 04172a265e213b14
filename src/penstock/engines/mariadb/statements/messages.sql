-- name: append_payloads
-- (new) -> ready for messages that differ only in their payload.
insert into penstock_log (position, lane_id, created_at, content_type, expires_at, payload) values (?, ?, ?, ?, ?, ?);
