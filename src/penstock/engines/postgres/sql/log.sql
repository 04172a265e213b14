-- name: browse
-- Messages of the log between two positions.
select * from penstock.browse(%s, %s::bigint, %s::bigint, %s::bigint, %s);

-- name: position_at
-- The last position sent before a time.
select penstock._position_at(%s::bigint);

-- name: last_position
-- The last position given out.
select penstock._last_position();

-- name: preview_seek
-- What a seek would do.
select "position", passed_by, read_again from penstock.preview_seek(%s, %s, %s, %s);

-- name: preview_retention
-- What shorter retentions would concern.
select messages, dead_letters from penstock.preview_retention(%s, %s::jsonb);

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

-- name: due_messages
-- Messages that wait for a time.
select * from penstock.due_messages(%s, %s, %s::bigint, %s::bigint, %s::integer, %s::bigint);

-- name: waiting_messages
-- Messages that wait for the start of their batch.
select * from penstock.waiting_messages(%s, %s::bigint, %s::bigint, %s::bigint);

-- name: ready_messages
-- Messages that can be received.
select * from penstock.ready_messages(%s, %s, %s::bigint, %s::integer, %s::integer, %s::bigint, %s::bigint);

-- name: batch_members
-- Members of a batch.
select * from penstock.batch_members(%s, %s, %s::bigint, %s::bigint, %s::integer, %s::bigint);

-- name: message_count
-- How many messages a queue holds.
select penstock.message_count(%s);

-- name: keep_traces
-- Keep stack traces of last errors.
select penstock.keep_traces(%s, %s, %s, %s::text[]);

-- name: error_trace
-- The stack trace of the last error of a message.
select penstock.error_trace(%s, %s::uuid, %s);
