-- Rows that a statement deletes from a message_archive of the LISTEN/NOTIFY conventions. They are removed together, at the
-- end of the statement.
create table penstock.door_clearing (
    door_id integer not null references penstock.door on delete cascade,
    seq     bigint not null,
    primary key (door_id, seq)
);

-- A worker of the conventions that archives its message after the sweep has done so knows only when it was sent.
create index dead_letter_lease_expired on penstock.dead_letter (group_id, created_at) where outcome = 'lease_expired';
