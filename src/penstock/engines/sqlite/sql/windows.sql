-- name: ranges
-- Stretches of a queue between two positions, in order.
select max(run.first_position, :start + 1), min(run.last_position, :end)
from penstock_lane as lane
join penstock_run as run using (lane_id)
where lane.queue_id = :queue_id and lane.priority >= 0 and run.last_position > :start and run.first_position <= :end
    and run.last_position <= (
        select coalesce(min(beyond.last_position), :end) from penstock_run as beyond
        where beyond.lane_id = lane.lane_id and beyond.last_position >= :end
    )
order by 1;

-- name: read
-- Messages in a row, for the pipeline.
select log.position, log.id, log.created_at, lane.priority, lane.shard, log.content_type, log.headers,
    log.expires_at, log.deadline_at, log.address, log.key, batch.name, log.created_by, log.available_at, log.payload
from penstock_log as log
join penstock_lane as lane using (lane_id)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where log.position between :first and :last
order by log.position;

-- name: place_stream
-- Where a stream group stands.
update penstock_group set stream_position = :position, used_at = :now where group_id = :group_id;

-- name: has_leased
-- Whether a group has been read with leases.
select exists (select 1 from penstock_cursor where group_id = :group_id)
    or exists (select 1 from penstock_tracked where group_id = :group_id)
    or exists (select 1 from penstock_lease where group_id = :group_id);
