-- Counters that never fall. The six columns that count outcomes say how many messages stand ended now: a redrive, a seek or a
-- flush takes some back. What they took back is kept beside them, so that both together only grow.
alter table penstock_group add column undone_succeeded integer not null default 0;
alter table penstock_group add column undone_rejected integer not null default 0;
alter table penstock_group add column undone_failed integer not null default 0;
alter table penstock_group add column undone_lease_expired integer not null default 0;
alter table penstock_group add column undone_expired integer not null default 0;
alter table penstock_group add column undone_cancelled integer not null default 0;

-- Attempts that did not succeed: naks, rejects and ended leases, whether retries were left or not.
alter table penstock_group add column failed_attempts integer not null default 0;

-- Members that were cancelled, of all that have ended. What cancelled batches left behind so far are dead letters.
alter table penstock_batch add column cancelled integer not null default 0;
update penstock_batch set cancelled = (
    select count(*)
    from penstock_queue as queue
    join penstock_dead_letter as dead on dead.group_id = queue.primary_group_id and dead.outcome = 'cancelled'
    join penstock_log as log on log.position = dead.position and log.batch_id = penstock_batch.batch_id
    where queue.queue_id = penstock_batch.queue_id
)
where state in ('cancelling', 'cancelled');
