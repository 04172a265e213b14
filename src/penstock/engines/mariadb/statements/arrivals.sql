-- name: policy_of
-- The policy of a queue, without a lock.
select policy from penstock_queue where name = :queue;

-- name: add_arrival
-- Keep a send until its transaction has committed.
insert into penstock_arrival (queue, sent_at, drafts) values (?, ?, ?);

-- name: has_arrivals
-- Whether there are committed sends that are not in the log yet.
select exists (select 1 from penstock_arrival);

-- name: has_arrivals_of
-- The same for one queue.
select exists (select 1 from penstock_arrival where queue = :queue);

-- name: queues_with_arrivals
-- Queues that have such sends, by name.
select distinct queue from penstock_arrival order by queue;

-- name: lock_free_queue
-- Lock a queue, unless another transaction has it.
select queue_id from penstock_queue where name = :queue for update skip locked;

-- name: arrivals
-- The sends of a queue after one of them, in their order, with their sizes.
select arrival_id, length(drafts)
from penstock_arrival force index (penstock_arrival_queue)
where queue = :queue and arrival_id > :after
order by arrival_id
limit :limit;

-- name: read_arrivals
-- Some of these sends.
select sent_at, drafts from penstock_arrival force index (primary) where arrival_id in (:values) order by arrival_id;

-- name: remove_arrivals
-- Remove sends that are in the log.
delete from penstock_arrival where arrival_id in (:values);
