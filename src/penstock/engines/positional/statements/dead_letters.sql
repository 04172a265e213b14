-- name: oldest_dead_letters
-- Positions of a group's dead letters, oldest first.
select position
from penstock_dead_letter
where group_id = :group_id and (:outcome is null or outcome = :outcome)
order by died_at, position
limit :limit;

-- name: find_dead_letter
-- One dead letter, with the columns of its message that a redrive needs.
select dead.outcome, dead.attempts, log.lane_id, lane.priority, log.created_at, log.expires_at, log.deadline_at,
    log.address, log.id
from penstock_dead_letter as dead
join penstock_log as log using (position)
join penstock_lane as lane using (lane_id)
where dead.group_id = :group_id and dead.position = :position
    and (:outcome is null or dead.outcome = :outcome);

-- name: remove_dead_letter
-- Delete a dead letter.
delete from penstock_dead_letter where group_id = :group_id and position = :position;

-- name: purge_old_dead_letters
-- Delete dead letters past their retention.
delete from penstock_dead_letter
where group_id = :group_id and died_at <= :before;
