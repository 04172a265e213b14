-- name: created_at
-- When the next message that was never held was sent: these are ordered by time, except for clock jumps.
select created_at from penstock_log
where position >= :position and available_at is null
order by position
limit 1;
