-- name: record
-- One step of the messages in a range. The numbers of entries that are gone are not given out again. Not as a select:
-- its rows would be put aside first, because it reads the table that is written.
insert into penstock_audit (
    entry_id, last_position, first_position, queue_id, group_id, at, event, state, by, reason, attempt, token
)
values (
    (
        select max(value, (select coalesce(max(entry_id), 0) from penstock_audit)) + 1
        from penstock_store
        where name = 'last_entry'
    ),
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
);

-- name: record_leases
-- One step of all leases of a receive that lie in a row between two positions: an entry for each, numbered by where it
-- begins.
insert into penstock_audit (
    entry_id, last_position, first_position, queue_id, group_id, at, event, state, by, reason, attempt, token
)
select :last_entry + 1 + first_position - :first, last_position, first_position, :queue_id, group_id, :now, :event,
    :state, consumer, null, 1, token
from penstock_lease
where group_id = :group_id and last_position between :first and :last and token = :token;

-- name: count_succeeded
-- Count how messages ended in the group.
update penstock_group set succeeded = succeeded + :count where group_id = :group_id;

-- name: count_rejected
-- Count how messages ended in the group.
update penstock_group set rejected = rejected + :count where group_id = :group_id;

-- name: count_failed
-- Count how messages ended in the group.
update penstock_group set failed = failed + :count where group_id = :group_id;

-- name: count_lease_expired
-- Count how messages ended in the group.
update penstock_group set lease_expired = lease_expired + :count where group_id = :group_id;

-- name: count_expired
-- Count how messages ended in the group.
update penstock_group set expired = expired + :count where group_id = :group_id;

-- name: count_cancelled
-- Count how messages ended in the group.
update penstock_group set cancelled = cancelled + :count where group_id = :group_id;

-- name: bury
-- A dead letter for each message of a range.
insert into penstock_dead_letter (group_id, position, outcome, reason, attempts, died_at)
select :group_id, position, :outcome, :reason, :attempts, :now
from penstock_log
where position between :first and :last;

-- name: end_addresses
-- The addresses of a range are free again, and remember how it ended.
update penstock_address
set outcome = :outcome, reason = :reason, ended_at = :now
where queue_id = :queue_id and position between :first and :last and outcome is null;
