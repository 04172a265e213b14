-- Queues that were deleted, until no transaction is open that may have seen them: what such a one leaves behind is found by
-- the numbers of the queue's lanes and groups, which stay as long.
create table penstock.deleted_queue (
    queue_id integer primary key,
    name     text not null,
    upto     xid8                                    -- set by the first sweep: whoever has seen the queue has a lower number
);

-- Lists go along these, whatever was sent or held at the same moment.
drop index penstock.held_due;
create index held_due on penstock.held (queue_id, available_at, held_id) where not waiting;
drop index penstock.held_batch;
create index held_batch on penstock.held (batch_id, held_id) where batch_id is not null;
drop index penstock.tracked_held;
create index tracked_held on penstock.tracked (group_id, until_at, seq) where state = 'held';
-- Finds the members of a batch in the log. Messages without a batch are not in it.
create index log_batch on penstock.log (batch_id, seq) where batch_id is not null;
