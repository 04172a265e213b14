-- name: last_message_upto
-- The last message of a queue up to a position, even if it was removed or trimmed.
select position, created_at from penstock_log
where position = (
    select max((
        select log.position from penstock_log as log
        where log.lane_id = lane.lane_id and log.position <= :upto
        order by log.position desc
        limit 1
    ))
    from penstock_lane as lane
    where lane.queue_id = :queue_id and lane.priority >= 0
)
union all
(
    select position, created_at from penstock_removed
    where queue_id = :queue_id and position <= :upto
    order by position desc
    limit 1
)
union all
select number, at from penstock_trimmed where queue_id = :queue_id and kind = 'messages' and number <= :upto
order by 1 desc
limit 1;

-- name: last_entry_upto
-- The last audit entry of a queue up to a number.
(
    select entry_id, at from penstock_audit
    where queue_id = :queue_id and entry_id <= :upto
    order by entry_id desc
    limit 1
)
union all
select number, at from penstock_trimmed where queue_id = :queue_id and kind = 'audit' and number <= :upto
order by 1 desc
limit 1;

-- name: entry_times
-- When an audit entry was written, if it is one of the queue.
select at from penstock_audit where entry_id = :number and queue_id = :queue_id
union all
select at from penstock_trimmed where queue_id = :queue_id and kind = 'audit' and number = :number;

-- name: note_audit_ends
-- Nothing: the end of a queue's audit is found by its key.
do 0;
