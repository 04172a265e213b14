-- name: last_code
-- The code of the error that ended a message in a group.
select code from penstock_audit
where last_position = :position and first_position = :position and group_id = :group_id
order by entry_id desc
limit 1;

-- name: find_address
-- The newest message of an address.
select id, position, outcome, reason from penstock_address where queue_id = :queue_id and address = :address;

-- name: is_holder_expired
-- Whether the message of an address has expired, though no sweep has recorded it.
select coalesce(
    (
        select case when tracked.position is null then log.expires_at else tracked.expires_at end <= :now
        from penstock_log as log
        left join penstock_tracked as tracked on tracked.group_id = :group_id and tracked.position = log.position
        where log.position = :position
    ),
    (
        select held.expires_at <= :now
        from penstock_identity as identity
        join penstock_held as held using (held_id)
        where identity.queue_id = :queue_id and identity.id = :id
    ),
    0
);

-- name: take_address
-- Assign the address to this message.
insert into penstock_address (queue_id, address, id, position) values (:queue_id, :address, :id, :position)
on conflict (queue_id, address) do update
set id = excluded.id, position = excluded.position, outcome = null, reason = null, ended_at = null;
