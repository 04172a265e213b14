-- name: keep_retry_trace
-- Store the stack trace of the last error of a message that waits for a retry.
update penstock_tracked set trace = :trace
where group_id = :group_id and position = :position and state <> 'leased';

-- name: keep_dead_trace
-- Store the stack trace of the last error of a dead letter.
update penstock_dead_letter set trace = :trace where group_id = :group_id and position = :position;

-- name: error_trace
-- The stack trace of the last error of a message.
select coalesce(
    (select trace from penstock_dead_letter where group_id = :group_id and position = :position),
    (select trace from penstock_tracked where group_id = :group_id and position = :position)
);
