-- name: ready_lane
-- Unread messages of a lane after a position that can still be received.
select log.position, log.created_at, log.id
from penstock_log as log
left join penstock_batch as batch on batch.batch_id = log.batch_id
where log.lane_id = :lane_id and log.position > :after
    and (log.expires_at is null or log.expires_at > :now)
    and (not :at_most_once or log.deadline_at is null or log.deadline_at > :now)
    and (batch.state is null or batch.state not in ('cancelling', 'cancelled'))
    and not exists (
        select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position
    )
order by log.position
limit :limit;
