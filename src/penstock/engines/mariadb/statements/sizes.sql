-- name: sizes_of_lane
-- Payload sizes of the messages of a lane after a position, in order.
select length(payload) from penstock_log
where lane_id = :lane_id and position > :after
order by position
limit :limit;
