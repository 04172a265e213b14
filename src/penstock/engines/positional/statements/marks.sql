-- name: message_times
-- When the message at a position was sent, if the queue had one there and still knows.
select log.created_at
from penstock_log as log
join penstock_lane as lane using (lane_id)
where log.position = :number and lane.queue_id = :queue_id
union all
select created_at from penstock_removed where queue_id = :queue_id and position = :number
union all
select at from penstock_trimmed where queue_id = :queue_id and kind = 'messages' and number = :number;

-- name: trimmed_mark
-- The last row of a queue that was trimmed.
select number, at from penstock_trimmed where queue_id = :queue_id and kind = :kind;

-- name: set_trimmed_mark
-- Record the last trimmed row; it never moves back.
insert into penstock_trimmed (queue_id, kind, number, at) values (:queue_id, :kind, :number, :at)
on conflict (queue_id, kind) do update
set at = iif(excluded.number > number, excluded.at, at), number = greatest(number, excluded.number);
