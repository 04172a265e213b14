-- name: record_entry
-- Write one audit entry for a range. Numbers of removed entries are not reused. Not an insert from a select, which
-- would copy its rows first because it reads the table that it writes.
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

-- name: record_error_code
-- Set the error code of the entry just written.
update penstock_audit set code = :code where entry_id = (select max(entry_id) from penstock_audit);

-- name: record_lease_entries
-- Write one entry for each lease of a receive between two positions, numbered in the order of their start.
insert into penstock_audit (
    entry_id, last_position, first_position, queue_id, group_id, at, event, state, by, reason, attempt, token
)
select :last_entry + 1 + first_position - :first, last_position, first_position, :queue_id, group_id, :now, :event,
    :state, consumer, null, 1, token
from penstock_lease
where group_id = :group_id and last_position between :first and :last and token = :token;
