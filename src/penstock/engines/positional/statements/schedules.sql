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
on conflict (name) do update
set cron = excluded.cron, timezone = excluded.timezone, queue = excluded.queue, message = excluded.message,
    catch_up = excluded.catch_up, paused = excluded.paused, next_at = excluded.next_at, last_at = excluded.last_at;

-- name: advance_schedule
-- Advance the tick in the transaction that sends its message, so that no other sends it.
update penstock_schedule set next_at = :next_at, last_at = coalesce(:last_at, last_at) where name = :name;

-- name: remove_schedule
-- Delete a schedule; messages it sent stay.
delete from penstock_schedule where name = :name;
