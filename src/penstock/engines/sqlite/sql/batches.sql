-- name: newest_batch
-- The newest batch of a name.
select batch_id, queue_id, name, state, total, end_message, abort_message
from penstock_batch
where queue_id = :queue_id and name = :name
order by batch_id desc
limit 1;

-- name: next_batch
-- The first batch of a name after a number.
select batch_id, queue_id, name, state, total, end_message, abort_message
from penstock_batch
where queue_id = :queue_id and name = :name and batch_id > :after
order by batch_id
limit 1;

-- name: find_batch
-- One batch by number.
select batch_id, queue_id, name, state, total, end_message, abort_message
from penstock_batch
where batch_id = :batch_id;

-- name: all_batches
-- The batches of a queue, newest first.
select batch_id, queue_id, name, state, total, end_message, abort_message
from penstock_batch
where queue_id = :queue_id
order by batch_id desc;

-- name: make_batch
-- A batch is open until it is started. Its number is greater than those that others have seen, also of batches that are
-- gone.
insert into penstock_batch (batch_id, queue_id, name, state, created_at)
select max(coalesce(max(batch_id), 0), :after) + 1, :queue_id, :name, 'open', :now from penstock_batch
returning batch_id, queue_id, name, state, total, end_message, abort_message;

-- name: set_end_message
-- What is sent when all members have ended.
update penstock_batch set end_message = :message where batch_id = :batch_id;

-- name: set_abort_message
-- What is sent when a cancelled batch has nothing in flight any more.
update penstock_batch set abort_message = :message where batch_id = :batch_id;

-- name: set_batch_state
-- open -> running or cancelling, and on from there.
update penstock_batch set state = :state, ended_at = :ended_at where batch_id = :batch_id;

-- name: remaining
-- Members that have not ended: in the log, and held.
select (select count(*) from penstock_member where batch_id = :batch_id)
    + (select count(*) from penstock_held where batch_id = :batch_id);

-- name: any_remaining
-- Whether a member has not ended.
select exists (select 1 from penstock_member where batch_id = :batch_id)
    or exists (select 1 from penstock_held where batch_id = :batch_id);

-- name: stop_waiting
-- The members that are held wait for their own time only.
update penstock_held set waiting = 0 where batch_id = :batch_id;

-- name: held_members
-- Members that are not in the log.
select held_id from penstock_held where batch_id = :batch_id order by held_id;

-- name: cancellable
-- Members that a group has not handed out: unread, or waiting for a retry.
select member.position, tracked.position is not null
from penstock_log as member
join penstock_lane as lane using (lane_id)
left join penstock_cursor as cursor on cursor.group_id = :group_id and cursor.lane_id = member.lane_id
left join penstock_tracked as tracked on tracked.group_id = :group_id and tracked.position = member.position
where member.position in (select position from penstock_member where batch_id = :batch_id)
    and (
        tracked.state in ('held', 'ready')
        or (tracked.position is null and member.position > coalesce(cursor.position, :trimmed_position))
    )
    and not exists (
        select 1 from penstock_skip as skip where skip.group_id = :group_id and skip.position = member.position
    )
order by member.position;

-- name: leave_batch
-- Members that have ended, by range.
delete from penstock_member where position between :first and :last
returning batch_id;
