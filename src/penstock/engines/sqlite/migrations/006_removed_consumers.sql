-- How many heartbeats a consumer may miss before it counts as dead, after how many of its own it looks for the dead among
-- its group, and how many it has sent.
alter table penstock_consumer add column max_missed_heartbeats integer not null default 1;
alter table penstock_consumer add column heartbeats_per_sweep integer not null default 10;
alter table penstock_consumer add column heartbeats integer not null default 0;

-- Consumers that were removed because they missed their heartbeats and have not registered again: they receive nothing.
create table penstock_removed_consumer (
    group_id   integer not null,
    name       text not null,
    removed_at integer not null,
    primary key (group_id, name)
) strict, without rowid;
