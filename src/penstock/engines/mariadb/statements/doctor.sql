-- name: paused_queues
-- Queues that are paused.
select name from penstock_queue where json_value(policy, '$.paused') in ('1', 'true');
