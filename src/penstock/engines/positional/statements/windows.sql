-- name: queue_ranges
-- Ranges of a queue between two positions, in order.
select greatest(run.first_position, :start + 1), least(run.last_position, :end)
from penstock_lane as lane
join penstock_run as run using (lane_id)
where lane.queue_id = :queue_id and lane.priority >= 0 and run.last_position > :start and run.first_position <= :end
    and run.last_position <= (
        select coalesce(min(beyond.last_position), :end) from penstock_run as beyond
        where beyond.lane_id = lane.lane_id and beyond.last_position >= :end
    )
order by 1;

-- name: queue_lanes
-- The readable lanes of a queue.
select lane_id from penstock_lane where queue_id = :queue_id and priority >= 0;

-- name: lane_ranges
-- The same for one lane, read lazily.
select greatest(first_position, :start + 1), least(last_position, :end)
from penstock_run
where lane_id = :lane_id and last_position > :start and first_position <= :end
    and last_position <= (
        select coalesce(min(beyond.last_position), :end) from penstock_run as beyond
        where beyond.lane_id = :lane_id and beyond.last_position >= :end
    )
order by last_position;

-- name: payload_sizes
-- Payload sizes of a range of messages.
select position, length(payload) from penstock_log where position between :first and :last order by position;

-- name: entries_between
-- Number of rows of each audit entry, of all entries or only of endings. Removed messages do not count.
select entry_id, last_position - first_position + 1 - (
        select count(*) from penstock_removed as gone
        where gone.queue_id = :queue_id and gone.position between first_position and last_position
    )
from penstock_audit
where entry_id > :start and entry_id <= :end and queue_id = :queue_id and first_position > 0
    and (not :ended or state not in ('held', 'ready', 'leased'))
order by entry_id;

-- name: entry_parts
-- The same in parts of similar size: first entry, last entry and number of rows of each.
with entries as (
    select entry_id, last_position - first_position + 1 - (
            select count(*) from penstock_removed as gone
            where gone.queue_id = :queue_id and gone.position between first_position and last_position
        ) as count
    from penstock_audit
    where entry_id > :start and entry_id <= :end and queue_id = :queue_id and first_position > 0
        and (not :ended or state not in ('held', 'ready', 'leased'))
), placed as (
    select entry_id, count, sum(count) over (order by entry_id) - 1 as place, sum(count) over () as total
    from entries
)
select min(entry_id), max(entry_id), sum(count)
from placed
group by place * :parts div total
order by 1;

-- name: dead_letter_parts
-- Dead letters in parts of similar size: first position, last position and number of each.
with placed as (
    select dead.position, dense_rank() over (order by dead.position) - 1 as place, count(*) over () as total
    from penstock_group as reader
    join penstock_dead_letter as dead using (group_id)
    where reader.queue_id = :queue_id
)
select min(position), max(position), count(*)
from placed
group by place * :parts div total
order by 1;

-- name: begin_stream
-- Make the group a stream group.
update penstock_group set stream_table = :table where group_id = :group_id;

-- name: place_stream
-- Set the cursor of a stream group.
update penstock_group set stream_position = :position, used_at = :now where group_id = :group_id;

-- name: has_leased
-- Whether a group was ever read with leases.
select exists (select 1 from penstock_cursor where group_id = :group_id)
    or exists (select 1 from penstock_tracked where group_id = :group_id)
    or exists (select 1 from penstock_lease where group_id = :group_id);
