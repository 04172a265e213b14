-- name: append
-- Plain messages of one content type; the first may have an id of the sender's own.
select created_at, first, positions, ids from penstock.append(%s, %s, %s, %s, %s::uuid);

-- name: send
-- Messages with options.
select penstock.send_messages(%s, %s, %s::text[], %s::jsonb, %s);

-- name: receive
-- A receive; the last row has the token and the group. The transaction is the client's own and ends at once.
select * from penstock.receive_messages(%s, %s, %s, %s::integer, %s::double precision, %s, %s, true);

-- name: take_over
-- Receive what others have in flight.
select * from penstock.take_over_leases(%s, %s, %s, %s::uuid[], %s::double precision, %s, %s);

-- name: remove
-- Take messages out for good.
select penstock.remove(%s, %s::uuid[]);

-- name: trim
-- Take out the oldest.
select penstock.trim(%s, %s::bigint, %s::bigint);

-- name: settle
-- Settle messages, each by its token.
select penstock.settle(%s, %s, %s::text[], %s, %s, %s::text[], %s::double precision[], %s::text[], true);

-- name: ack_whole
-- Ack a whole receive.
select penstock.ack_whole(%s, %s, %s::bigint, %s::integer, %s::bigint);

-- name: extend
-- Lengthen leases.
select penstock.extend_each(%s, %s, %s, %s, %s::double precision);

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

-- name: flush
-- Remove every message.
select penstock.flush(%s);

-- name: clear
-- Remove every message and every group.
select penstock.clear(%s);

-- name: forget
-- Remove a group.
select penstock.forget(%s, %s);

-- name: seek
-- Move a cursor.
select penstock.seek(%s, %s, %s, %s);

-- name: ready_in
-- Microseconds until a receive could return something.
select penstock.ready_in(%s, %s);

-- name: position_of
-- The position of a message.
select penstock.position_of(%s, %s::uuid);

-- name: leases
-- What is in flight.
select * from penstock.leases(%s, %s, %s::uuid[], %s, %s::bigint, %s::bigint);

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

-- name: is_live
-- Whether a message of an address has not ended.
select penstock.is_live(%s, %s);

-- name: cancelled
-- Whether the batches of messages in flight were cancelled.
select penstock.cancelled(%s, %s, %s::bigint[]);

-- name: ended
-- How a message ended in the primary group.
select outcome, reason, code from penstock.ended(%s, %s::uuid);

-- name: batch_open
-- Make a batch or set its messages.
select batch, state, total, remaining, cancelled from penstock.batch_open(%s, %s, %s::jsonb, %s::jsonb, %s::bigint);

-- name: batch_start
-- Start a batch.
select batch, state, total, remaining, cancelled from penstock.batch_start(%s, %s, %s::bigint);

-- name: batch_cancel
-- Cancel a batch.
select batch, state, total, remaining, cancelled from penstock.batch_cancel(%s, %s, %s::bigint);

-- name: batch_mark
-- The number before the batch that is meant by one who comes now.
select penstock.batch_mark(%s, %s, %s);

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

-- name: register
-- Register a consumer.
select * from penstock.register(%s, %s, %s, %s::double precision, %s, %s);

-- name: heartbeat
-- Keep a consumer alive.
select * from penstock.heartbeat(%s, %s, %s);

-- name: deregister
-- Remove a consumer.
select penstock.deregister(%s, %s, %s);

-- name: consumers
-- Living consumers.
select * from penstock.consumers(%s);

-- name: schedule_put
-- Make or replace a schedule.
select * from penstock.schedule_put(%s, %s, %s, %s, %s::jsonb, %s, %s::bigint);

-- name: schedules
-- All schedules by name.
select * from penstock.schedule order by name;

-- name: find_schedule
-- One schedule.
select * from penstock.schedule where name = %s;

-- name: due_schedules
-- Schedules whose tick has come.
select * from penstock.schedule where next_at <= penstock.now_us() order by name;

-- name: schedule_pause
-- Stop or go on sending.
select * from penstock.schedule_pause(%s, %s, %s::bigint);

-- name: schedule_run
-- Send the message of a schedule now.
select penstock.schedule_run(%s);

-- name: delete_queue
-- Remove a queue and everything in it.
select penstock.delete_queue(%s);

-- name: schedule_fire
-- Send what ticks ask for.
select penstock.schedule_fire(%s, %s::bigint, %s, %s::bigint);

-- name: unschedule
-- Remove a schedule.
select penstock.unschedule(%s);

-- name: dead_letters
-- Dead letters, newest first.
select * from penstock.list_dead_letters(%s, %s, %s, %s::bigint, %s::bigint, %s::bigint, %s);

-- name: redrive
-- Send dead letters again.
select penstock.redrive(%s, %s::uuid[], %s, %s, %s::bigint);

-- name: purge
-- Remove dead letters.
select penstock.purge(%s, %s::uuid[], %s, %s, %s::bigint);

-- name: next_messages
-- What would be received next.
select * from penstock.next_messages(%s, %s, %s::bigint);

-- name: find
-- One message by its id.
select * from penstock.find(%s, %s::uuid);

-- name: stats
-- Counts of every group.
select * from penstock.stats(%s);

-- name: audit
-- What happened to a message.
select * from penstock.list_audit(%s, %s::uuid);

-- name: ended_messages
-- Messages that have ended in a group.
select * from penstock.ended_messages(%s, %s, %s, %s::bigint, %s::bigint);

-- name: states
-- Where many messages stand in a group.
select * from penstock.states(%s, %s, %s::uuid[]);

-- name: situation
-- What is known about a message in a group.
select penstock.situation(%s, %s::uuid, %s);

-- name: now
-- The clock of the store.
select penstock.now_us();

-- name: claim_sweep
-- Whether nobody has claimed a pass for so many seconds; then it is claimed.
select penstock.claim_sweep(%s);

-- name: sweep_consumers
-- Remove consumers that are gone.
select penstock.sweep_consumers();

-- name: sweep_queue
-- Maintain one queue.
select promoted, reclaimed, expired, trimmed, purged, deleted from penstock.sweep_queue(%s, %s::bigint);

-- name: decide
-- The position up to which everything is decided.
select penstock.decide();

-- name: delete_trimmed
-- Delete some more rows of a queue that are past retention.
select penstock.delete_trimmed(%s);

-- name: queue_names
-- The names of all queues.
select name from penstock.queue order by queue_id;

-- name: known_names
-- Names that somebody may have meant: of queues, of groups or batches of a queue, of schedules.
select name from penstock.queue where %s = 'queue'
union
select g.name from penstock.queue as q join penstock.group as g using (queue_id) where %s = 'group' and q.name = %s
union
select b.name from penstock.queue as q join penstock.batch as b using (queue_id) where %s = 'batch' and q.name = %s
union
select name from penstock.schedule where %s = 'schedule';

-- name: stage_chunk
-- Messages put aside, as a piece of a part.
select penstock.stage_chunk(%s, %s, %s, %s, %s, %s::integer, %s::integer, %s, %s::text[], %s::jsonb);

-- name: stage_part
-- A part that is whole.
select penstock.stage_part(%s, %s, %s, %s);

-- name: release_staged
-- Send what was put aside.
select penstock.release_staged(%s, %s, %s::text[]);

-- name: discard_staged
-- Drop what was put aside.
select penstock.discard_staged(%s, %s);

-- name: ledger
-- Entries of a kind by how their keys begin.
select key, value from penstock.ledger where kind = %s and starts_with(key, %s) order by key;

-- name: record_facts
-- Change entries of the ledger together.
select penstock.record_facts(%s, %s::jsonb, %s::text[], %s::jsonb);

-- name: epoch
-- Names the log.
select epoch from penstock.store;

-- name: is_prepared
-- Whether a send to these priorities would make nothing new.
select penstock.is_prepared(%s, %s::integer[]);

-- name: prepare
-- Make what the first send to a queue would make, unless another transaction is making it.
select penstock.prepare_briefly(%s, %s::integer[]);

-- name: reached
-- The last position that a group has read.
select penstock.reached(%s, %s);

-- name: unread_after
-- For each group the position behind which its unread messages lie.
select group_name, position from penstock.unread_after(%s);
