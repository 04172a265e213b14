-- name: peek_lane
-- Unread messages of a lane.
select log.position, :priority
from penstock_run as run
cross join penstock_log as log on log.position between max(run.first_position, :after + 1) and run.last_position
left join penstock_batch as batch on batch.batch_id = log.batch_id
where run.lane_id = :lane_id and run.last_position > :after
    and (log.expires_at is null or log.expires_at > :now)
    and (not :at_most_once or log.deadline_at is null or log.deadline_at > :now)
    and (batch.state is null or batch.state not in ('cancelling', 'cancelled'))
    and not exists (
        select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position
    )
order by run.last_position, log.position
limit :limit;
