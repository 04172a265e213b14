-- name: dead_letters
-- Dead letters of a group before a place among them, newest first: in the order of an index, so that only those are read
-- that are asked for.
select dead.position, dead.outcome, dead.reason, dead.attempts, dead.died_at, log.created_at, log.id, log.content_type,
    log.headers, log.payload
from penstock_dead_letter as dead indexed by penstock_dead_letter_died_at
cross join penstock_log as log using (position)
where dead.group_id = :group_id and (dead.died_at, dead.position) < (:before_at, :before_position)
    and (:outcome is null or dead.outcome = :outcome)
order by dead.died_at desc, dead.position desc
limit :limit;

-- name: oldest
-- Positions of a group's dead letters, oldest first.
select position
from penstock_dead_letter
where group_id = :group_id and (:outcome is null or outcome = :outcome)
order by died_at, position
limit :limit;

-- name: find_dead_letter
-- One dead letter, with what a redrive needs of its message.
select dead.outcome, dead.attempts, log.lane_id, lane.priority, log.created_at, log.expires_at, log.deadline_at,
    log.address, log.id
from penstock_dead_letter as dead
join penstock_log as log using (position)
join penstock_lane as lane using (lane_id)
where dead.group_id = :group_id and dead.position = :position
    and (:outcome is null or dead.outcome = :outcome);

-- name: remove_dead_letter
-- The dead letter is gone.
delete from penstock_dead_letter where group_id = :group_id and position = :position;

-- name: old_dead_letters
-- Dead letters past their retention.
delete from penstock_dead_letter
where group_id = :group_id and died_at <= :before;

-- name: uncount_rejected
-- A message that is live again has not ended.
update penstock_group set rejected = rejected - 1 where group_id = :group_id;

-- name: uncount_failed
-- A message that is live again has not ended.
update penstock_group set failed = failed - 1 where group_id = :group_id;

-- name: uncount_lease_expired
-- A message that is live again has not ended.
update penstock_group set lease_expired = lease_expired - 1 where group_id = :group_id;

-- name: uncount_expired
-- A message that is live again has not ended.
update penstock_group set expired = expired - 1 where group_id = :group_id;

-- name: uncount_cancelled
-- A message that is live again has not ended.
update penstock_group set cancelled = cancelled - 1 where group_id = :group_id;
