-- name: register_consumer
-- Register at the end of the birth order; a registered consumer keeps its place.
insert into penstock_consumer (
    group_id, name, registered_at, heartbeat_at, heartbeat_seconds, max_missed_heartbeats, heartbeats_per_sweep
)
values (:group_id, :name, :now, :now, :heartbeat_seconds, :max_missed_heartbeats, :heartbeats_per_sweep)
on conflict (group_id, name) do update
set heartbeat_at = excluded.heartbeat_at, heartbeat_seconds = excluded.heartbeat_seconds,
    max_missed_heartbeats = excluded.max_missed_heartbeats, heartbeats_per_sweep = excluded.heartbeats_per_sweep;

-- name: deregister_consumer
-- Remove the consumer.
delete from penstock_consumer where group_id = :group_id and name = :name;

-- name: consumers
-- Registered consumers in birth order, each with its index in its group.
select consumer.consumer_id, consumer.name, queue.name, reader.name,
    row_number() over (partition by consumer.group_id order by consumer.consumer_id) - 1,
    count(*) over (partition by consumer.group_id),
    consumer.registered_at, consumer.heartbeat_at, consumer.heartbeat_seconds, consumer.max_missed_heartbeats,
    consumer.heartbeats_per_sweep
from penstock_consumer as consumer
join penstock_group as reader using (group_id)
join penstock_queue as queue using (queue_id)
order by consumer.consumer_id;

-- name: consumer
-- One registered consumer, with its index in its group and the size of the group.
select consumer.consumer_id, consumer.registered_at, consumer.heartbeat_at, consumer.heartbeat_seconds,
    consumer.max_missed_heartbeats, consumer.heartbeats_per_sweep,
    (select count(*) from penstock_consumer as elder
        where elder.group_id = consumer.group_id and elder.consumer_id < consumer.consumer_id),
    (select count(*) from penstock_consumer as living where living.group_id = consumer.group_id)
from penstock_consumer as consumer
where consumer.group_id = :group_id and consumer.name = :name;

-- name: missing_consumers
-- Consumers that missed more heartbeats than allowed, of all groups or of one.
select consumer.group_id, consumer.name, queue.name, reader.name
from penstock_consumer as consumer
join penstock_group as reader using (group_id)
join penstock_queue as queue using (queue_id)
where (:group_id is null or consumer.group_id = :group_id)
    and consumer.heartbeat_at + (consumer.max_missed_heartbeats + 1) * consumer.heartbeat_seconds * 1000000 < :now;

-- name: note_removed_consumer
-- Refuse receives of the consumer until it registers again.
insert into penstock_removed_consumer (group_id, name, removed_at) values (:group_id, :name, :now)
on conflict (group_id, name) do update set removed_at = excluded.removed_at;

-- name: readmit_consumer
-- Accept the consumer, which has registered again.
delete from penstock_removed_consumer where group_id = :group_id and name = :name;

-- name: forget_long_removed_consumers
-- Forget consumers that were removed before a time.
delete from penstock_removed_consumer where removed_at < :before;

-- name: is_removed_consumer
-- Whether the consumer has to register again before it receives.
select 1 from penstock_removed_consumer where group_id = :group_id and name = :name;
