-- name: audit_entries
-- Audit entries of the message at a position, in order.
select audit.at, audit.event, audit.state, audit."by", reader.name, audit.reason, audit.attempt
from penstock_audit as audit
left join penstock_group as reader using (group_id)
where audit.last_position between :position and :position + :span and audit.first_position <= :position
    and audit.queue_id = :queue_id
order by audit.entry_id;
