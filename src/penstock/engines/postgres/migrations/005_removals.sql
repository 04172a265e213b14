-- What readers look at to notice that rows went away after their window was split: messages taken out by hand, and
-- segments that gave their room back.
alter table penstock.queue add column removals bigint not null default 0;

-- A removal, and the places between which all lie that it took out. Gone when retention has reached them.
create table penstock.removal (
    queue_id  integer not null,
    number    bigint not null,                       -- of the queue's removals, in the order of commits
    first_tx  xid8 not null,
    first_seq bigint not null,
    last_tx   xid8 not null,
    last_seq  bigint not null,
    primary key (queue_id, number)
);

-- How often the segment has been truncated.
alter table penstock.segment add column freed bigint not null default 0;
