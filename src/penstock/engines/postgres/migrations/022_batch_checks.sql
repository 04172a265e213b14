-- Batches whose end is still to be decided: a member has ended while another transaction, which could not be waited for, was
-- deciding about the batch or sending to it. The next receive or sweep of the batch's queue decides.
create table penstock.batch_check (
    check_id bigint generated always as identity primary key,
    queue_id integer not null,
    batch_id bigint not null
);
create index batch_check_queue on penstock.batch_check (queue_id);
create index batch_check_batch on penstock.batch_check (batch_id);
