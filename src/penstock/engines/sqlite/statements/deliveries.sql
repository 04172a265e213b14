-- name: read_lane
-- Messages of a lane after a position, over several runs.
select log.position, log.created_at, log.id, log.content_type, log.headers, log.expires_at, log.deadline_at,
    log.address, log.key, null, log.created_by, log.payload, :priority, 1, :ends_at
from penstock_run as run
cross join penstock_log as log on log.position between max(run.first_position, :after + 1) and run.last_position
where run.lane_id = :lane_id and run.last_position > :after
order by run.last_position, log.position
limit :limit;

-- name: read_lane_checked
-- The same, without messages that expired, passed their deadline, belong to a cancelled batch, or have ended.
select log.position, log.created_at, log.id, log.content_type, log.headers, log.expires_at, log.deadline_at,
    log.address, log.key, batch.name, log.created_by, log.payload, :priority, 1,
    min(
        :ends_at,
        coalesce(log.expires_at, :ends_at),
        case when log.deadline_at > :now then log.deadline_at else :ends_at end
    )
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

-- name: ended_unread
-- Messages of a lane between two positions that expired or were cancelled, but have not ended in the group yet.
select log.position,
    case
        when log.expires_at <= :now then 'expire'
        when :at_most_once and log.deadline_at <= :now then 'deadline'
        else 'batch_cancel'
    end
from penstock_run as run
cross join penstock_log as log
    on log.position between max(run.first_position, :after + 1) and min(run.last_position, :upto)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where run.lane_id = :lane_id and run.last_position > :after
    and run.last_position <= (
        select coalesce(min(beyond.last_position), :upto) from penstock_run as beyond
        where beyond.lane_id = :lane_id and beyond.last_position >= :upto
    )
    and (
        log.expires_at <= :now
        or (:at_most_once and log.deadline_at <= :now)
        or batch.state in ('cancelling', 'cancelled')
    )
    and not exists (
        select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position
    )
order by log.position;
