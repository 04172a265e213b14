-- What happened can be read by window, as the log can: entries are never given the same number twice, and a queue
-- knows up to where its trail may be gone.
alter table penstock_queue add column trimmed_entry integer not null default 0;
update penstock_queue set trimmed_entry = (select coalesce(max(entry_id), 0) from penstock_audit)
where trimmed_position > 0;
insert into penstock_store (name, value) select 'last_entry', coalesce(max(entry_id), 0) from penstock_audit;

-- What a stream group reads: the log, or what happened ('audit').
alter table penstock_group add column stream_table text not null default 'messages';

-- Small facts that others keep in the store and change together, such as what a sink has sent or a lake holds.
create table penstock_ledger (
    kind  text not null,
    key   text not null,
    value text not null,                       -- JSON
    primary key (kind, key)
) strict, without rowid;

-- Messages that were handed in but not sent yet: a sink puts them aside part by part, and sends all of them at once.
create table penstock_staged (
    staged_id    integer primary key,
    content_type text,                         -- null for bytes
    options      blob,                         -- MessagePack; null for nothing but a payload
    payload      blob not null
) strict;

-- Which of them belong together. Rows of one stretch were put aside in one transaction.
create table penstock_stage (
    first_id  integer primary key,
    last_id   integer not null,
    queue_id  integer not null,
    key       text not null,
    part      text not null,
    is_plain  integer not null,                -- 1 when none of them has options
    staged_at integer not null
) strict;
create index penstock_stage_key on penstock_stage (queue_id, key, part);
