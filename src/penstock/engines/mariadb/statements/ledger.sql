-- name: ledger_entries
-- The entries of a kind whose keys begin with a prefix.
select `key`, value
from penstock_ledger
where kind = :kind and left(`key`, char_length(:prefix)) = :prefix
order by `key`;

-- name: ledger_entry
-- One entry. A writer locks the ledger first, because it expects what it reads here, also where there is no entry.
select value from penstock_store where name = 'ledger' for update;
select value from penstock_ledger where kind = :kind and `key` = :key;
