-- Counters that never fall. The six columns that count outcomes say how many messages stand ended now: a redrive, a seek or a
-- flush takes some back. What they took back is kept beside them, so that both together only grow.
alter table penstock.reader
    add column undone_succeeded     bigint not null default 0,
    add column undone_rejected      bigint not null default 0,
    add column undone_failed        bigint not null default 0,
    add column undone_lease_expired bigint not null default 0,
    add column undone_expired       bigint not null default 0,
    add column undone_cancelled     bigint not null default 0,
    -- Attempts that did not succeed, up to what was folded in by a sweep: naks, rejects and ended leases, whether retries
    -- were left or not.
    add column failed_attempts      bigint not null default 0;

-- How many members of a batch ended by being cancelled, in rows of their own: the row of a batch that is written once for
-- each member would be found the slower the more there are. What cancelled batches left behind so far are dead letters.
alter table penstock.joining add column cancelled integer not null default 0;
insert into penstock.joining (batch_id, n, cancelled)
select b.batch_id, 0, count(*)
from penstock.batch as b
join penstock.queue as q using (queue_id)
join penstock.reader as g on g.queue_id = q.queue_id and g.name = q.primary_group
join penstock.dead_letter as d on d.group_id = g.group_id and d.batch_id = b.batch_id and d.outcome = 'cancelled'
where b.state in ('cancelling', 'cancelled')
group by b.batch_id;
