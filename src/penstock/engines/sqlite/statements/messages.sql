-- name: append_payloads
-- The same for messages that differ only in their payload. Rows of an array are numbered from 1.
insert into penstock_log (position, lane_id, created_at, content_type, expires_at, payload)
select ?1 + rowid, ?2, ?3, ?4, ?5, value from carray(?6);
