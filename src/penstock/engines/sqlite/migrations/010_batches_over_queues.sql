-- Queues other than its own in which a batch has, or had, members.
create table penstock_batch_queue (
    batch_id integer not null,
    queue_id integer not null,
    primary key (batch_id, queue_id)
) strict, without rowid;
create index penstock_batch_queue_queue on penstock_batch_queue (queue_id);
