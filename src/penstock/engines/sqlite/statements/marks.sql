-- name: last_message_upto
-- The last message of a queue up to a position, even if it was removed or trimmed.
select position, created_at from penstock_log
where position = (
    select max(coalesce(
        (
            select iif(run.first_position <= :upto, :upto, null) from penstock_run as run
            where run.lane_id = lane.lane_id and run.last_position >= :upto
            order by run.last_position
            limit 1
        ),
        (
            select run.last_position from penstock_run as run
            where run.lane_id = lane.lane_id and run.last_position < :upto
            order by run.last_position desc
            limit 1
        )
    ))
    from penstock_lane as lane
    where lane.queue_id = :queue_id and lane.priority >= 0
)
union all
select position, created_at from (
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
-- The last audit entry of a queue up to a number; entries before the recorded end are not scanned.
select entry_id, at from (
    select entry_id, at from penstock_audit
    where entry_id > (select value from penstock_store where name = 'trail_upto') and entry_id <= :upto
        and queue_id = :queue_id
    order by entry_id desc
    limit 1
)
union all
select entry_id, at from penstock_trail where queue_id = :queue_id and entry_id <= :upto
union all
select number, at from penstock_trimmed where queue_id = :queue_id and kind = 'audit' and number <= :upto
order by 1 desc
limit 1;

-- name: entry_times
-- When an audit entry was written, if it is one of the queue.
select at from penstock_audit where entry_id = :number and queue_id = :queue_id
union all
select at from penstock_trail where queue_id = :queue_id and entry_id = :number
union all
select at from penstock_trimmed where queue_id = :queue_id and kind = 'audit' and number = :number;

-- name: note_audit_ends
-- Record the last entry of each queue that has new entries.
insert into penstock_trail (queue_id, entry_id, at)
select queue_id, max(entry_id), at from penstock_audit
where entry_id > (select value from penstock_store where name = 'trail_upto')
group by queue_id
on conflict (queue_id) do update set entry_id = excluded.entry_id, at = excluded.at;
