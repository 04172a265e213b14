-- Finds the lease of a message that is known by its id only. Leases of a group never overlap, so the first one that ends
-- at or after a position is the only one that can hold it.
create index penstock_lease_position on penstock_lease (group_id, last_position);
