-- Queues other than its own in which a batch has, or had, members.
create table penstock.batch_queue (
    batch_id bigint not null references penstock.batch on delete cascade,
    queue_id integer not null,
    primary key (batch_id, queue_id)
);
create index batch_queue_queue on penstock.batch_queue (queue_id);
