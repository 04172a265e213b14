-- name: put_ledger_entry
-- Insert or replace an entry.
insert into penstock_ledger (kind, "key", value) values (?, ?, ?)
on conflict (kind, "key") do update set value = excluded.value;

-- name: remove_ledger_entry
-- Delete an entry.
delete from penstock_ledger where kind = ? and "key" = ?;
