-- name: record_entry
-- Write one audit entry for a range, under the next number of its queue.
update penstock_queue set last_entry = last_entry + 1 where queue_id = ?3;
insert into penstock_audit (
    queue_id, entry_id, last_position, first_position, group_id, at, event, state, `by`, reason, attempt, token
)
select ?3, last_entry, ?1, ?2, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 from penstock_queue where queue_id = ?3;

-- name: record_error_code
-- Set the error code of the entry just written.
update penstock_audit set code = :code
where queue_id = :queue_id and entry_id = (select last_entry from penstock_queue where queue_id = :queue_id);

-- name: record_lease_entries
-- Write one entry for each lease of a receive between two positions, numbered in the order of their start.
update penstock_queue set last_entry = :last_entry + 1 + :last - :first where queue_id = :queue_id;
insert into penstock_audit (
    queue_id, entry_id, last_position, first_position, group_id, at, event, state, `by`, reason, attempt, token
)
select :queue_id, :last_entry + 1 + first_position - :first, last_position, first_position, group_id, :now, :event,
    :state, consumer, null, 1, token
from penstock_lease
where group_id = :group_id and last_position between :first and :last and token = :token;
