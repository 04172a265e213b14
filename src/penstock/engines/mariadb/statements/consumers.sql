-- name: record_heartbeat
-- Record a heartbeat; return whether it is this consumer's turn to remove others that missed theirs.
update penstock_consumer set heartbeat_at = :now, heartbeats = heartbeats + 1
where group_id = :group_id and name = :name;
select heartbeats % heartbeats_per_sweep = 0 from penstock_consumer where group_id = :group_id and name = :name;
