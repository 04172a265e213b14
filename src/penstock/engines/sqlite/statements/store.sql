-- name: last_position
-- The last position given out. It is never reused, even if its message was removed.
select max(
    (select value from penstock_store where name = 'last_position'),
    coalesce((select max(position) from penstock_log), 0)
);

-- name: keep_position
-- Record the last position; called before messages are removed.
update penstock_store
set value = max(value, coalesce((select max(position) from penstock_log), 0))
where name = 'last_position';

-- name: last_entry
-- The number of the last audit entry. It is never reused, even if the entry was removed.
select max(value, (select coalesce(max(entry_id), 0) from penstock_audit)) from penstock_store where name = 'last_entry';

-- name: keep_entry
-- Record the last entry; called before audit entries are removed.
update penstock_store
set value = max(value, (select coalesce(max(entry_id), 0) from penstock_audit))
where name = 'last_entry';
