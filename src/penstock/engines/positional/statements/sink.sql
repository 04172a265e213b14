-- name: stage_message
-- Stage a message.
insert into penstock_staged (staged_id, content_type, options, payload) values (?, ?, ?, ?);

-- name: record_stage
-- Record a stage: the range of messages staged together.
insert into penstock_stage (first_id, last_id, queue_id, "key", part, priority, staged_at)
values (:first, :last, :queue_id, :key, :part, :priority, :now);

-- name: stages_of_part
-- The stages of one part, in order.
select first_id, last_id, priority
from penstock_stage
where queue_id = :queue_id and "key" = :key and part = :part
order by first_id;

-- name: staged_messages
-- Staged messages of a range.
select content_type, options, payload from penstock_staged where staged_id between :first and :last order by staged_id;

-- name: move_staged
-- (new) -> ready for staged messages that are plain.
insert into penstock_log (position, lane_id, created_at, content_type, payload)
select :position + staged_id - :staged, :lane_id, :now, content_type, payload
from penstock_staged
where staged_id between :staged and :last
order by staged_id;

-- name: drop_staged
-- Delete staged messages.
delete from penstock_staged where staged_id between :first and :last;
