-- name: remove_tracked
-- Stop tracking a message.
delete from penstock_tracked where group_id = :group_id and position = :position
returning attempt;
