-- A statement that only calls a function has the name of the function, where it is described.

-- the store
select penstock.now_us();
select penstock.claim_sweep(%s);
select penstock.sweep_consumers();
select * from penstock.sweep_queue(%s, %s::bigint);
select penstock.decide();
select penstock.delete_trimmed(%s);
select penstock.record_facts(%s, %s::jsonb, %s::text[], %s::jsonb);

-- queues
select penstock.flush(%s);
select penstock.clear(%s);
select penstock.delete_queue(%s);
select penstock.is_prepared(%s, %s::integer[]);
select penstock.prepare_briefly(%s, %s::integer[]);
select * from penstock.preview_retention(%s, %s::jsonb);

-- messages
select * from penstock.append(%s, %s, %s, %s, %s::uuid);
select penstock.send_messages(%s, %s, %s::text[], %s::jsonb, %s);
select * from penstock.find(%s, %s::uuid);
select * from penstock.browse(%s, %s::bigint, %s::bigint, %s::bigint, %s);
select * from penstock.next_messages(%s, %s, %s::bigint);
select * from penstock.ended_messages(%s, %s, %s, %s::bigint, %s::bigint);
select penstock.position_of(%s, %s::uuid);
select * from penstock.states(%s, %s, %s::uuid[]);
select penstock.situation(%s, %s::uuid, %s);
select * from penstock.list_audit(%s, %s::uuid);
select penstock.remove(%s, %s::uuid[]);
select penstock.trim(%s, %s::bigint, %s::bigint);
select penstock.message_count(%s);
select penstock.settled(%s);
select * from penstock.places(%s, %s::bigint, %s::bigint, %s::bigint, %s);
select * from penstock.due_messages(%s, %s, %s::bigint, %s::bigint, %s::integer, %s::bigint);
select * from penstock.waiting_messages(%s, %s::bigint, %s::bigint, %s::bigint);
select * from penstock.ready_messages(%s, %s, %s::bigint, %s::integer, %s::integer, %s::bigint, %s::bigint);

-- deliveries
select * from penstock.receive_messages(%s, %s, %s, %s::integer, %s::double precision, %s, %s, true);
select * from penstock.take_over_leases(%s, %s, %s, %s::uuid[], %s::double precision, %s, %s);
select * from penstock.leases(%s, %s, %s::uuid[], %s, %s::bigint, %s::bigint);
select penstock.fitting(%s, %s, %s::integer, %s::bigint);
select penstock.ready_in(%s, %s);
select penstock.settle(%s, %s, %s::text[], %s, %s, %s::text[], %s::double precision[], %s::text[], true);
select penstock.ack_whole(%s, %s, %s::bigint, %s::integer, %s::bigint);
select penstock.extend_each(%s, %s, %s, %s, %s::double precision);
select penstock.keep_traces(%s, %s, %s, %s::text[]);
select penstock.error_trace(%s, %s::uuid, %s);

-- groups
select * from penstock.stats(%s);
select penstock.unread(%s);
select penstock.reached(%s, %s);
select penstock.seek(%s, %s, %s, %s);
select * from penstock.preview_seek(%s, %s, %s, %s);
select penstock.forget(%s, %s);

-- addresses
select penstock.is_live(%s, %s);
select * from penstock.ended(%s, %s::uuid);

-- batches
select penstock.batch_mark(%s, %s, %s);
select * from penstock.batch_open(%s, %s, %s::jsonb, %s::jsonb, %s::bigint);
select * from penstock.batch_start(%s, %s, %s::bigint);
select * from penstock.batch_cancel(%s, %s, %s::bigint);
select * from penstock.batch_members(%s, %s, %s::bigint, %s::bigint, %s::integer, %s::bigint);
select penstock.cancelled(%s, %s, %s::bigint[]);

-- consumers
select * from penstock.register(%s, %s, %s, %s::double precision, %s, %s);
select * from penstock.heartbeat(%s, %s, %s);
select penstock.deregister(%s, %s, %s);
select * from penstock.consumers(%s);

-- schedules
select * from penstock.schedule_put(%s, %s, %s, %s, %s::jsonb, %s, %s::bigint);
select * from penstock.schedule_pause(%s, %s, %s::bigint);
select penstock.schedule_run(%s);
select penstock.schedule_fire(%s, %s::bigint, %s, %s::bigint);
select penstock.unschedule(%s);

-- dead letters
select * from penstock.list_dead_letters(%s, %s, %s, %s::bigint, %s::bigint, %s::bigint, %s);
select penstock.redrive(%s, %s::uuid[], %s, %s, %s::bigint);
select penstock.purge(%s, %s::uuid[], %s, %s, %s::bigint);

-- the sink
select penstock.stage_chunk(%s, %s, %s, %s, %s, %s::integer, %s::integer, %s, %s::text[], %s::jsonb);
select penstock.stage_part(%s, %s, %s, %s);
select penstock.release_staged(%s, %s, %s::text[]);
select penstock.discard_staged(%s, %s);

-- name: declare
-- Set policy fields.
select {policy} from penstock.declare(%s, %s::jsonb);

-- name: find_queue
-- The policy of a queue.
select {policy} from penstock.queue where name = %s;

-- name: queues
-- All queues by name, with their groups.
select q.name, q.created_at, array(select g.name from penstock.group as g where g.queue_id = q.queue_id order by g.name),
    {policy}
from penstock.queue as q
order by q.name;

-- name: groups
-- The groups of a queue by name.
select g.name from penstock.queue as q join penstock.group as g using (queue_id) where q.name = %s order by g.name;

-- name: address
-- The newest message of an address.
select a.id::text, a.outcome, a.reason, (
    select s.code from penstock.audit as s join penstock.group as g using (group_id)
    where a.outcome in ('failed', 'rejected') and s.queue_id = q.queue_id and s.last = a.position and s.first = a.position
        and g.name = q.primary_group
    order by s.entry desc limit 1
)
from penstock.queue as q join penstock.address as a using (queue_id)
where q.name = %s and a.address = %s;

-- name: batch
-- The newest batch of a name, or the first one after a number.
select i.name, i.state, i.total, i.remaining, i.cancelled
from penstock._get_queue(%s) as q
cross join lateral penstock._get_batch(q, %s, %s::bigint) as b
cross join lateral penstock._batch_info(b) as i;

-- name: batches
-- The batches of a queue, newest first.
select i.name, i.state, i.total, i.remaining, i.cancelled
from penstock.queue as q
join penstock.batch as b using (queue_id)
cross join lateral penstock._batch_info(b) as i
where q.name = %s
order by b.batch_id desc;

-- name: schedules
-- All schedules by name.
select * from penstock.schedule order by name;

-- name: find_schedule
-- One schedule.
select * from penstock.schedule where name = %s;

-- name: due_schedules
-- Schedules with a due tick.
select * from penstock.schedule where next_at <= penstock.now_us() order by name;

-- name: queue_names
-- The names of all queues.
select name from penstock.queue order by queue_id;

-- name: known_names
-- Candidates for a misspelt name: queues, groups or batches of a queue, schedules.
select name from penstock.queue where %s = 'queue'
union
select g.name from penstock.queue as q join penstock.group as g using (queue_id) where %s = 'group' and q.name = %s
union
select b.name from penstock.queue as q join penstock.batch as b using (queue_id) where %s = 'batch' and q.name = %s
union
select name from penstock.schedule where %s = 'schedule';

-- name: ledger
-- Entries of a kind whose keys have a prefix.
select key, value from penstock.ledger where kind = %s and starts_with(key, %s) order by key;

-- name: position_at
-- The last position sent before a time.
select penstock._position_at(%s::bigint);

-- name: last_position
-- The last position that was assigned.
select penstock._last_position();
