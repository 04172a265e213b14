-- name: paused_queues
-- Queues that are paused.
select name from penstock_queue where json_extract(policy, '$.paused');

-- name: journal_mode
-- The journal mode in force.
pragma journal_mode;
