-- name: next_staged_id
-- The next staged id.
select coalesce(max(staged_id), 0) + 1 from penstock_staged;

-- name: drop_stages
-- Delete the stages of a key, and abandoned ones; return their ranges.
delete from penstock_stage where (queue_id = :queue_id and key = :key) or staged_at < :before
returning first_id, last_id;
