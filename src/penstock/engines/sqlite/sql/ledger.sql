-- name: entries
-- The entries of a kind whose keys begin alike.
select key, value
from penstock_ledger
where kind = :kind and substr(key, 1, length(:prefix)) = :prefix
order by key;

-- name: entry
-- One entry.
select value from penstock_ledger where kind = :kind and key = :key;

-- name: put
-- Write an entry down, in place of the one that was there.
insert into penstock_ledger (kind, key, value) values (?, ?, ?)
on conflict (kind, key) do update set value = excluded.value;

-- name: remove
-- An entry is gone.
delete from penstock_ledger where kind = ? and key = ?;
