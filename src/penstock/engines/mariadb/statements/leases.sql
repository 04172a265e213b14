-- name: remove_tracked
-- Stop tracking a message.
select attempt from penstock_tracked where group_id = :group_id and position = :position;
delete from penstock_tracked where group_id = :group_id and position = :position;
