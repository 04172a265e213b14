-- name: due_held
-- Held messages whose time has come, earliest first.
select held_id
from penstock_held
where queue_id = :queue_id and waiting = 0 and available_at <= :now
order by available_at, held_id
limit :limit;

-- name: due_members
-- Members of a batch whose own time has come too.
select held_id
from penstock_held
where batch_id = :batch_id and available_at <= :now
order by held_id;

-- name: make_available
-- Members of a batch are available when it starts, which is after they were sent.
update penstock_held set available_at = max(:now, created_at + 1) where batch_id = :batch_id and available_at <= :now;

-- name: take_held
-- Take one message out of the held ones.
delete from penstock_held where held_id = :held_id
returning priority, shard, id, created_at, content_type, headers, expires_at, deadline_at, address, key, batch_id,
    created_by, available_at, payload;

-- name: settle_address
-- The address's message has a position now.
update penstock_address set position = :position
where queue_id = :queue_id and address = :address and id = :id;

-- name: due_tracked
-- Retries whose time has come, earliest first.
select position, attempt
from penstock_tracked
where group_id = :group_id and state = 'held' and until_at <= :now
order by until_at, position
limit :limit;

-- name: make_ready
-- held -> ready.
update penstock_tracked set state = 'ready' where group_id = :group_id and position = :position;
