-- name: fact
-- One fact about the store.
select value from penstock_store where name = :name;

-- name: set_fact
-- Set one fact about the store.
insert into penstock_store (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value;
