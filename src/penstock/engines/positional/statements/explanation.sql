-- name: cursor_of
-- The group's cursor in the lane of a message, and whether groups read that lane.
select coalesce("cursor".position, :trimmed_position), lane.priority, lane.shard
from penstock_log as log
join penstock_lane as lane using (lane_id)
left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = log.lane_id
where log.position = :position;

-- name: lease_holder
-- The lease of a group that contains a position.
select token, consumer, ends_at
from penstock_lease
where group_id = :group_id and first_position <= :position and last_position = (
    select min(last_position) from penstock_lease where group_id = :group_id and last_position >= :position
);

-- name: dead_letter_at
-- The dead letter of a message.
select outcome, reason, attempts, died_at
from penstock_dead_letter
where group_id = :group_id and position = :position;

-- name: held_state
-- Why a message is held.
select held.available_at, held.waiting, held.created_at, held.created_by, held.expires_at, batch.name
from penstock_held as held
left join penstock_batch as batch on batch.batch_id = held.batch_id
where held.held_id = :held_id;
