-- name: ledger_entries
-- The entries of a kind whose keys begin with a prefix.
select key, value
from penstock_ledger
where kind = :kind and substr(key, 1, length(:prefix)) = :prefix
order by key;

-- name: ledger_entry
-- One entry.
select value from penstock_ledger where kind = :kind and key = :key;

-- name: put_ledger_entry
-- Insert or replace an entry.
insert into penstock_ledger (kind, key, value) values (?, ?, ?)
on conflict (kind, key) do update set value = excluded.value;

-- name: remove_ledger_entry
-- Delete an entry.
delete from penstock_ledger where kind = ? and key = ?;
