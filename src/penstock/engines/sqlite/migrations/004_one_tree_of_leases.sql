-- Leases in one tree, by position: a receive and an ack of one message write fewer pages. Leases of a group never overlap,
-- so the first one that ends at or after a position is the only one that can hold it.
create table penstock_lease_by_position (
    group_id       integer not null,
    last_position  integer not null,
    first_position integer not null,
    token          integer not null,
    lane_id        integer not null,
    consumer       text not null,
    ends_at        integer not null,
    primary key (group_id, last_position)
) strict, without rowid;
insert into penstock_lease_by_position
select group_id, last_position, first_position, token, lane_id, consumer, ends_at from penstock_lease;

-- What was looked up in the other two trees goes with the cursor, which a receive writes anyway.
alter table penstock_cursor add column token integer not null default 0;  -- the latest one given out for the lane
alter table penstock_cursor add column lease_ends_at integer;             -- no lease on the lane ends before
update penstock_cursor
set (token, lease_ends_at) = (
    select coalesce(max(lease.token), 0), min(lease.ends_at)
    from penstock_lease as lease
    where lease.group_id = penstock_cursor.group_id and lease.lane_id = penstock_cursor.lane_id
);

drop table penstock_lease;
alter table penstock_lease_by_position rename to penstock_lease;
