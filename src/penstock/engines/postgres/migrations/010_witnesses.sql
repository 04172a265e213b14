-- The row before a mark, by which a store knows its own marks: a message or a step.
create type penstock.witness as (
    tx     xid8,
    number bigint,                                   -- position or entry
    at     bigint
);

-- The last messages that were trimmed: the one of the last transaction, and the one with the last position.
-- The time is 0 where it is not known any more.
alter table penstock.queue add column trimmed_rows penstock.witness[];
update penstock.queue set trimmed_rows = array[row (trimmed_tx, trimmed_position, 0)::penstock.witness]
where trimmed_tx is not null;

-- Messages that were taken out one by one, until retention has reached them.
create table penstock.removed (
    queue_id   integer not null,
    seq        bigint not null,
    tx         xid8 not null,
    created_at bigint not null,
    primary key (queue_id, seq)
);
