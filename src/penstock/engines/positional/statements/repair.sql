-- name: lake_marks
-- The marks of lakes.
select value from penstock_ledger where kind = 'lake' and "key" like '%/mark/%';

-- name: late_audits
-- Audits that start late although nothing of the queue was trimmed, as earlier versions left them.
select trimmed.queue_id, queue.name, trimmed.number
from penstock_trimmed as trimmed
join penstock_queue as queue using (queue_id)
where trimmed.kind = 'audit' and trimmed.at = 0 and queue.trimmed_position = 0
order by queue.name;

-- name: incomplete_entries
-- Audit entries of a queue that cover removed messages.
select first_position, last_position
from penstock_audit as audit
where queue_id = :queue_id and first_position > 0 and last_position - first_position + 1 > (
    select count(*) from penstock_log as log where log.position between audit.first_position and audit.last_position
)
order by entry_id;

-- name: positions_between
-- Positions of messages between two positions.
select position from penstock_log where position between :first and :last;

-- name: note_missing_message
-- Record a message that was removed at an unknown time.
insert or ignore into penstock_removed (queue_id, position, created_at) values (:queue_id, :position, 0);

-- name: restore_audit_start
-- Reset the start of the audit.
delete from penstock_trimmed where queue_id = :queue_id and kind = 'audit';

-- name: stranded_batches
-- Open batches with messages whose predecessor of the same name had ended, without a recent message.
select queue.name, batch.name, count(*)
from penstock_batch as batch
join penstock_queue as queue using (queue_id)
join penstock_held as held using (batch_id)
where batch.state = 'open' and batch.end_message is null and batch.abort_message is null and exists (
    select 1 from penstock_batch as earlier
    where earlier.queue_id = batch.queue_id and earlier.name = batch.name and earlier.batch_id < batch.batch_id
        and earlier.ended_at <= batch.created_at
)
group by batch.batch_id
having max(held.created_at) <= :before
order by queue.name, batch.name;
