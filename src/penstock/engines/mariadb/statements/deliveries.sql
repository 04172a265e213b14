-- name: read_lane
-- Messages of a lane after a position, over several runs.
select position, created_at, id, content_type, headers, expires_at, deadline_at, address, `key`, null, created_by,
    payload, :priority, 1, :ends_at
from penstock_log
where lane_id = :lane_id and position > :after
order by position
limit :limit;

-- name: read_lane_checked
-- The same, without messages that expired, passed their deadline, belong to a cancelled batch, or have ended.
select log.position, log.created_at, log.id, log.content_type, log.headers, log.expires_at, log.deadline_at,
    log.address, log.`key`, batch.name, log.created_by, log.payload, :priority, 1,
    least(
        :ends_at,
        coalesce(log.expires_at, :ends_at),
        case when log.deadline_at > :now then log.deadline_at else :ends_at end
    )
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

-- name: ended_unread
-- Messages of a lane between two positions that expired or were cancelled, but have not ended in the group yet.
select log.position,
    case
        when log.expires_at <= :now then 'expire'
        when :at_most_once and log.deadline_at <= :now then 'deadline'
        else 'batch_cancel'
    end
from penstock_log as log
left join penstock_batch as batch on batch.batch_id = log.batch_id
where log.lane_id = :lane_id and log.position > :after and log.position <= :upto
    and (
        log.expires_at <= :now
        or (:at_most_once and log.deadline_at <= :now)
        or batch.state in ('cancelling', 'cancelled')
    )
    and not exists (
        select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = log.position
    )
order by log.position;
