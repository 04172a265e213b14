-- name: set_end_message
-- Set the message that is sent when all members have ended.
update penstock_batch set end_message = :message where batch_id = :batch_id;

-- name: set_abort_message
-- Set the message that is sent when a cancelled batch has no member in flight any more.
update penstock_batch set abort_message = :message where batch_id = :batch_id;

-- name: stop_waiting_for_batch
-- Held members no longer wait for the batch, only for their own delay.
update penstock_held set waiting = 0 where batch_id = :batch_id;

-- name: held_members
-- Members of a queue that are not in the log.
select held_id from penstock_held where batch_id = :batch_id and queue_id = :queue_id order by held_id;

-- name: cancellable_members
-- Members that the group has not delivered: unread, or waiting for a retry.
select member.position, tracked.position is not null
from penstock_log as member
join penstock_lane as lane using (lane_id)
left join penstock_cursor as "cursor" on "cursor".group_id = :group_id and "cursor".lane_id = member.lane_id
left join penstock_tracked as tracked on tracked.group_id = :group_id and tracked.position = member.position
where member.position in (select position from penstock_member where batch_id = :batch_id)
    and lane.queue_id = :queue_id
    and (
        tracked.state in ('held', 'ready')
        or (tracked.position is null and member.position > coalesce("cursor".position, :trimmed_position))
    )
    and not exists (
        select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = member.position
    )
order by member.position;
