-- name: settled_before
-- What the same token did to a message earlier: repeating it is harmless.
select state
from penstock_audit
where last_position between :position and :position + :span and first_position <= :position
    and group_id = :group_id and token = :token and event = :event;
