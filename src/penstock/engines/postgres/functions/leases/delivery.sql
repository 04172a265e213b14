-- The end of a lease, and a message of the log as it is handed out.

-- The end of a lease granted now: a deadline or an expiry that lies ahead ends it early.
create or replace function penstock._lease_end(
    _now bigint, _lease_seconds double precision, _expires_at bigint, _deadline_at bigint
) returns bigint
language sql immutable as $$
    select least(
        _now + penstock._microseconds(_lease_seconds),
        case when _expires_at > _now then _expires_at end,
        case when _deadline_at > _now then _deadline_at end
    )
$$;

-- A message of the log on its first attempt.
create or replace function penstock._log_row(
    m penstock.log, _priority integer, _token bigint, _consumer text
) returns penstock.message_row
language sql immutable as $$
    select row (
        m.position, m.lane_id, _priority, 1, _token, _consumer, null, m.created_at, m.id, m.content_type, m.headers,
        m.expires_at, m.deadline_at, m.address, m.key, m.batch_id, m.created_by, m.available_at, m.payload
    )::penstock.message_row
$$;
