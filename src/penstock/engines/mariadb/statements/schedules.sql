-- name: schedules
-- All schedules by name.
select name, cron, timezone, queue, message, catch_up, paused, next_at, last_at
from penstock_schedule
order by name;

-- name: find_schedule
-- One schedule.
select name, cron, timezone, queue, message, catch_up, paused, next_at, last_at
from penstock_schedule
where name = :name
for update;

-- name: put_schedule
-- Create or replace a schedule.
insert into penstock_schedule (name, cron, timezone, queue, message, catch_up, paused, next_at, last_at)
values (:name, :cron, :timezone, :queue, :message, :catch_up, :paused, :next_at, :last_at)
on duplicate key update cron = values(cron), timezone = values(timezone), queue = values(queue), message = values(message),
    catch_up = values(catch_up), paused = values(paused), next_at = values(next_at), last_at = values(last_at);

-- name: advance_schedule
-- Advance the tick in the transaction that sends its message, so that no other sends it.
update penstock_schedule set next_at = :next_at, last_at = coalesce(:last_at, last_at) where name = :name;

-- name: remove_schedule
-- Delete a schedule; messages it sent stay.
delete from penstock_schedule where name = :name;
