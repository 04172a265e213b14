-- name: dead_letters
-- Dead letters of a group before a place, newest first.
select dead.position, dead.outcome, dead.reason, dead.attempts, dead.died_at, log.created_at, log.id, log.content_type,
    log.headers, log.payload
from penstock_dead_letter as dead
join penstock_log as log using (position)
where dead.group_id = :group_id
    and (dead.died_at < :before_at or (dead.died_at = :before_at and dead.position < :before_position))
    and (:outcome is null or dead.outcome = :outcome)
order by dead.died_at desc, dead.position desc
limit :limit;
