-- name: make_group
-- Create a group.
insert into penstock_group (queue_id, name, used_at) values (:queue_id, :name, :now);
select group_id, queue_id, name, stream_position, used_at, stream_table
from penstock_group
where queue_id = :queue_id and name = :name;

-- name: count_withdrawn
-- Count messages that ended while held before the group existed, as for every group. The order of the joins and the
-- index keep it from rows of other queues, which MySQL would lock.
update penstock_group
join (
    select straight_join
        sum(audit.state = 'expired') as expired,
        sum(audit.state = 'cancelled') as cancelled
    from penstock_lane as lane force index (primary)
    join penstock_run as run using (lane_id)
    join penstock_audit as audit on audit.last_position between run.first_position and run.last_position
    where lane.queue_id = :queue_id and lane.priority < 0 and audit.group_id is null
) as ended
set penstock_group.expired = coalesce(ended.expired, 0), penstock_group.cancelled = coalesce(ended.cancelled, 0)
where penstock_group.group_id = :group_id;
