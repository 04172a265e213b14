-- A mark names the row before it and the time of that row, so that a store which was restored from a copy can tell that it
-- never had that row. Rows that are gone are vouched for here.

-- The last message and the last audit entry of a queue that were trimmed: what is left begins behind them. The time is 0
-- where it is not known any more.
create table penstock_trimmed (
    queue_id integer not null,
    kind     text not null,                    -- messages or audit
    number   integer not null,                 -- position or entry
    at       integer not null,
    primary key (queue_id, kind)
) strict, without rowid;
insert into penstock_trimmed (queue_id, kind, number, at)
select queue_id, 'messages', trimmed_position, 0 from penstock_queue where trimmed_position > 0
union all
select queue_id, 'audit', trimmed_entry, 0 from penstock_queue where trimmed_entry > 0;
alter table penstock_queue drop column trimmed_entry;

-- Messages that were taken out one by one, for as long as entries of the trail reach over their positions.
create table penstock_removed (
    queue_id   integer not null,
    position   integer not null,
    created_at integer not null,
    primary key (queue_id, position)
) strict, without rowid;

-- The last audit entry of each queue, of those up to the fact 'trail_upto': the end of a quiet queue's trail is found
-- without reading what happened in others since.
create table penstock_trail (
    queue_id integer primary key,
    entry_id integer not null,
    at       integer not null
) strict;
insert into penstock_store (name, value) values ('trail_upto', 0);
