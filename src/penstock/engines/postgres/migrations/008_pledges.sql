-- Large parts of a sink are written straight into the log by a transaction that is pledged (PREPARE TRANSACTION). Whoever
-- writes one has a share in its row until the transaction has ended: the row cannot go before.
create table penstock.pledge (
    name     text primary key,                       -- of the prepared transaction
    queue_id integer not null,
    key      text not null,
    part     text not null,
    begun_at bigint not null,
    messages bigint,                                 -- null until the part is whole
    fate     text                                    -- null -> kept or dropped, once and for all
);
create index pledge_key on penstock.pledge (queue_id, key);
