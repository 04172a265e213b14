-- name: browse
-- Messages of the log between two positions.
select * from penstock.browse(%s, %s::bigint, %s::bigint, %s::bigint, %s);

-- name: position_at
-- The last position sent before a time.
select penstock._position_at(%s::bigint);

-- name: last_position
-- The last position given out.
select penstock._last_position();

-- name: unread
-- What a new group could receive.
select penstock.unread(%s);

-- name: settled
-- The position up to which nothing can appear any more.
select penstock.settled(%s);

-- name: places
-- Positions between two positions, with the time and the size of each message.
select * from penstock.places(%s, %s::bigint, %s::bigint, %s::bigint, %s);

-- name: fitting
-- How many of the next messages of a group are not larger together than so many bytes.
select penstock.fitting(%s, %s, %s::integer, %s::bigint);
