-- name: message_to_claim
-- What a claim needs of a message that is delivered out of order, and whether the group has not read it.
select log.lane_id, lane.priority, log.expires_at, log.deadline_at, log.batch_id,
    log.position > coalesce("cursor".position, :trimmed_position)
from penstock_log as log
join penstock_lane as lane using (lane_id)
left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = log.lane_id
where log.position = :position and log.position > :trimmed_position and lane.priority >= 0
    and (log.expires_at is null or log.expires_at > :now);

-- name: skip_if_absent
-- Make the group's cursor skip the message, if it does not already.
insert or ignore into penstock_skip (group_id, position) values (:group_id, :position);
