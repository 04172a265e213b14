-- name: ledger_entries
-- The entries of a kind whose keys begin with a prefix.
select key, value
from penstock_ledger
where kind = :kind and substr(key, 1, length(:prefix)) = :prefix
order by key;

-- name: ledger_entry
-- One entry.
select value from penstock_ledger where kind = :kind and key = :key;
