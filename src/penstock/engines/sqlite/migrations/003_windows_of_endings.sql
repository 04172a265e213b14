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
