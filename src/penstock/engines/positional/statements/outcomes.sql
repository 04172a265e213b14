-- name: count_cancelled_members
-- Add to the number of cancelled members.
update penstock_batch set cancelled = cancelled + :count where batch_id = :batch_id;

-- name: any_remaining_member
-- Whether a member has not ended.
select exists (select 1 from penstock_member where batch_id = :batch_id)
    or exists (select 1 from penstock_held where batch_id = :batch_id);

-- name: count_succeeded
-- Count messages that ended succeeded.
update penstock_group set succeeded = succeeded + :count where group_id = :group_id;

-- name: count_rejected
-- Count messages that ended rejected.
update penstock_group set rejected = rejected + :count where group_id = :group_id;

-- name: count_failed
-- Count messages that ended failed.
update penstock_group set failed = failed + :count where group_id = :group_id;

-- name: count_lease_expired
-- Count messages that ended lease_expired.
update penstock_group set lease_expired = lease_expired + :count where group_id = :group_id;

-- name: count_expired
-- Count messages that ended expired.
update penstock_group set expired = expired + :count where group_id = :group_id;

-- name: count_cancelled
-- Count messages that ended cancelled.
update penstock_group set cancelled = cancelled + :count where group_id = :group_id;

-- name: count_failed_attempt
-- Count a failed attempt.
update penstock_group set failed_attempts = failed_attempts + 1 where group_id = :group_id;

-- name: insert_dead_letters
-- Insert a dead letter for each message of a range.
insert into penstock_dead_letter (group_id, position, outcome, reason, attempts, died_at)
select :group_id, position, :outcome, :reason, :attempts, :now
from penstock_log
where position between :first and :last;

-- name: end_addresses
-- Free the addresses of a range and record the outcome.
update penstock_address
set outcome = :outcome, reason = :reason, ended_at = :now
where queue_id = :queue_id and position between :first and :last and outcome is null;
