-- name: stuck_leases
-- Leases that ended more than a minute ago and were not reclaimed.
select queue.name, reader.name, count(*)
from penstock_lease as lease
join penstock_group as reader using (group_id)
join penstock_queue as queue using (queue_id)
where lease.ends_at < :now - 60000000
group by queue.name, reader.name;

-- name: late_schedules
-- Schedules whose tick was due more than two minutes ago.
select name from penstock_schedule where next_at < :now - 120000000;

-- name: late_held
-- Queues with messages that were due more than a minute ago.
select queue.name, count(*)
from penstock_held as held
join penstock_queue as queue using (queue_id)
where held.waiting = 0 and held.available_at < :now - 60000000
group by queue.name;

-- name: silent_groups
-- Groups with unread messages that were not used for an hour.
select distinct queue.name, reader.name
from penstock_group as reader
join penstock_queue as queue using (queue_id)
join penstock_lane_end as lane using (queue_id)
left join penstock_cursor as "cursor" on "cursor".group_id = reader.group_id and "cursor".lane_id = lane.lane_id
where reader.used_at < :now - 3600000000 and lane.priority >= 0
    and lane.last_position > coalesce("cursor".position, queue.trimmed_position);

-- name: carried_groups
-- Idle groups that lost messages to trimming in the last week.
select queue.name, audit.reason
from penstock_audit as audit
join penstock_queue as queue using (queue_id)
where audit.last_position = 0 and audit.event = 'seek' and audit.at > :now - 7 * 86400000000;

-- name: dead_letter_count
-- Number of dead letters.
select count(*) from penstock_dead_letter;

-- name: open_batches
-- Batches that were not started for a day.
select queue.name, batch.name
from penstock_batch as batch
join penstock_queue as queue using (queue_id)
where batch.state = 'open' and batch.created_at < :now - 86400000000;
