-- name: register
-- A place at the end of the birth order; one that is there already keeps its place.
insert into penstock_consumer (group_id, name, registered_at, heartbeat_at, heartbeat_seconds)
values (:group_id, :name, :now, :now, :heartbeat_seconds)
on conflict (group_id, name) do update
set heartbeat_at = excluded.heartbeat_at, heartbeat_seconds = excluded.heartbeat_seconds;

-- name: heartbeat
-- The consumer is alive.
update penstock_consumer set heartbeat_at = :now where group_id = :group_id and name = :name;

-- name: deregister
-- The consumer is gone.
delete from penstock_consumer where group_id = :group_id and name = :name;

-- name: consumers
-- Living consumers in birth order, each with its place among those of its group.
select consumer.consumer_id, consumer.name, queue.name, reader.name,
    row_number() over (partition by consumer.group_id order by consumer.consumer_id) - 1,
    count(*) over (partition by consumer.group_id),
    consumer.registered_at, consumer.heartbeat_at, consumer.heartbeat_seconds
from penstock_consumer as consumer
join penstock_group as reader using (group_id)
join penstock_queue as queue using (queue_id)
order by consumer.consumer_id;

-- name: consumer
-- One living consumer, with its place in the birth order of its group and how many there are.
select consumer.consumer_id, consumer.registered_at, consumer.heartbeat_at, consumer.heartbeat_seconds,
    (select count(*) from penstock_consumer as elder
        where elder.group_id = consumer.group_id and elder.consumer_id < consumer.consumer_id),
    (select count(*) from penstock_consumer as living where living.group_id = consumer.group_id)
from penstock_consumer as consumer
where consumer.group_id = :group_id and consumer.name = :name;

-- name: missing
-- Consumers that have missed two heartbeats.
select consumer.group_id, consumer.name, queue.name, reader.name
from penstock_consumer as consumer
join penstock_group as reader using (group_id)
join penstock_queue as queue using (queue_id)
where consumer.heartbeat_at + 2 * consumer.heartbeat_seconds * 1000000 < :now;
