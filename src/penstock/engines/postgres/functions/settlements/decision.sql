-- The decision of the lifecycle table: where a leased message goes. It equals penstock.domain.settlement.decide, which
-- tests/engines/postgres/test_settlement_vectors.py proves on generated vectors.

-- The delay before a retry: base × factor^(attempt - 1), at most the maximum, plus jitter.
create or replace function penstock._backoff_seconds(q penstock.queue, _attempt integer) returns double precision
language sql volatile as $$
    select least(q.backoff_base_seconds * q.backoff_factor ^ least(_attempt - 1, 64), q.backoff_max_seconds)
        + q.backoff_jitter_seconds * penstock._random_number()
$$;

-- What an event makes of a leased message: the event to record, the next state and, while the message stays live, how long
-- it waits (in microseconds) and how many attempts it has behind it.
create or replace function penstock._decide_settlement(
    q penstock.queue, msg penstock.message_row, _event text, _delay double precision, _now bigint,
    out event text, out state text, out wait bigint, out attempt integer
)
language plpgsql as $$
declare
    _at_most_once boolean := q.delivery = 'at_most_once';
    _is_late boolean := coalesce(msg.deadline_at <= _now, false);
    _has_retries boolean := q.max_retries is null or msg.attempt <= q.max_retries;
begin
    event := _event;
    wait := 0;
    attempt := msg.attempt;
    case _event
        when 'ack' then
            state := 'succeeded';
        when 'reject' then
            state := 'rejected';
        when 'nak' then
            if not _has_retries or (_at_most_once and _is_late) then
                state := 'failed';
            else
                wait := penstock._microseconds(greatest(0, coalesce(_delay, penstock._backoff_seconds(q, msg.attempt))));
            end if;
        when 'reschedule' then
            wait := penstock._microseconds(greatest(0, coalesce(_delay, 0)));
            attempt := 0;
        when 'release' then
            attempt := msg.attempt - 1;
        when 'lease_end' then
            if msg.expires_at <= _now then
                event := 'expire';
                state := 'expired';
            elsif _at_most_once and _is_late then
                event := 'deadline';
                state := 'expired';
            elsif _at_most_once then
                state := 'lease_expired';
            elsif not _has_retries then
                state := 'failed';
            end if;
        else
            raise exception using errcode = 'PN100', message = format('%s does not happen to a leased message', _event);
    end case;
    if state is not null then
        return;
    end if;
    -- Live again, unless the batch was cancelled meanwhile.
    if msg.batch_id is not null and exists (
        select 1 from penstock.batch as b where b.batch_id = msg.batch_id and b.state in ('cancelling', 'cancelled')
    ) then
        state := 'cancelled';
    else
        state := case when wait > 0 then 'held' else 'ready' end;
    end if;
end
$$;

-- Apply an event to a leased message: decide, record it, and end the message or track it further.
create or replace function penstock._apply_event(
    q penstock.queue, g penstock.group, msg penstock.message_row, _event text, _reason text, _delay double precision,
    _now bigint, _code text default null
) returns text
language plpgsql as $$
declare
    verdict record;
    _why text;
begin
    select * into verdict from penstock._decide_settlement(q, msg, _event, _delay, _now);
    _why := coalesce(_reason, penstock._default_reason(verdict.event));
    if verdict.state not in ('held', 'ready') then
        perform penstock._end_message(
            q, g, msg, verdict.event, verdict.state, msg.consumer, _why, msg.attempt, msg.token, true, _now, _code
        );
        return verdict.state;
    end if;
    perform penstock._record_audit(
        q.queue_id, g.group_id, verdict.event, verdict.state, msg.position, msg.consumer, _why, msg.attempt, msg.token, _now, _code
    );
    if _event = 'reschedule' then
        msg.expires_at := msg.expires_at + verdict.wait;
    end if;
    msg.reason := coalesce(_why, msg.reason);
    msg.consumer := null;
    perform penstock._track_message(g.group_id, msg, verdict.state, verdict.attempt, _now + verdict.wait, null);
    if verdict.state = 'ready' then
        perform penstock._wake_receivers(q.queue_id);
    end if;
    if q.ordered and q.delivery <> 'at_most_once' and _event <> 'release' then
        perform penstock._release_following(q, g, msg, _now);
    end if;
    return verdict.state;
end
$$;
