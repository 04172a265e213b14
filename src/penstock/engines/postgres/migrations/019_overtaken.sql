-- How far a lane was overtaken: a place behind which nothing is left to take. Every message before it was taken out of its
-- turn and committed, is over, or is published by an open transaction. It counts while the group's cursor in the lane has
-- the same number and those positions are still published; see penstock._take_singly.
create table penstock.overtaken (
    note_id   bigint generated always as identity primary key,
    group_id  integer not null,
    lane_id   integer not null,
    number    bigint not null,                       -- of the cursor
    published int8multirange not null,               -- lower 44 bits of positions
    prev      pg_snapshot not null,                  -- the window and the place in it, as in a claim
    snap      pg_snapshot not null,
    at_tx     xid8 not null,
    at_seq    bigint not null,
    above     bigint not null,
    is_used_up boolean not null default false        -- never in a note: it lies in a window
);
create index overtaken_lane on penstock.overtaken (group_id, lane_id, note_id);
