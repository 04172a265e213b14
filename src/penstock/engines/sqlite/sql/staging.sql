-- name: next_id
-- The number of the next message to put aside.
select coalesce(max(staged_id), 0) + 1 from penstock_staged;

-- name: stage
-- Put a message aside.
insert into penstock_staged (staged_id, content_type, options, payload) values (?, ?, ?, ?);

-- name: note
-- Write down which messages were put aside together.
insert into penstock_stage (first_id, last_id, queue_id, key, part, is_plain, staged_at)
values (:first, :last, :queue_id, :key, :part, :is_plain, :now);

-- name: stretches
-- What was put aside as one part, in order.
select first_id, last_id, is_plain
from penstock_stage
where queue_id = :queue_id and key = :key and part = :part
order by first_id;

-- name: staged
-- Messages that were put aside.
select content_type, options, payload from penstock_staged where staged_id between :first and :last order by staged_id;

-- name: move
-- (new) -> ready, for messages that were put aside and are nothing but a payload.
insert into penstock_log (position, lane_id, created_at, content_type, payload)
select :position + staged_id - :staged, :lane_id, :now, content_type, payload
from penstock_staged
where staged_id between :staged and :last
order by staged_id;

-- name: dropped
-- What was put aside under a key, and what nobody has asked for in a long time.
delete from penstock_stage where (queue_id = :queue_id and key = :key) or staged_at < :before
returning first_id, last_id;

-- name: drop
-- Messages that were sent, or will not be.
delete from penstock_staged where staged_id between :first and :last;
