-- The calls of the stored-procedure convention. The schemas have thin functions that pass their own number.

create or replace function penstock._compat_enqueue(
    _schema_id integer, _message_json json, _message_id uuid, _delay_seconds integer, _created_by text, _item_ttl integer
) returns uuid
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    _options jsonb;
begin
    if _message_json is null then
        raise exception using errcode = 'PN100', message = 'message_json is null',
            hint = 'A message is any JSON value, for example ''{}''; for JSON''s own null write ''null''.';
    elsif _message_id = '00000000-0000-0000-0000-000000000000' then
        raise exception using errcode = 'PN100', message = format('message_id cannot be %s', _message_id),
            hint = 'That id means that the queue is empty. Leave it out, or choose another.';
    end if;
    _options := jsonb_build_object(
        -- 0 is the default of the convention and stands for the setting; a negative delay means now.
        'delay_seconds', case when _delay_seconds <> 0 then greatest(_delay_seconds, 0) end,
        'ttl_seconds', case when _item_ttl > 15 then _item_ttl * 60.0 end,
        'id', _message_id,
        'is_exact', true
    );
    perform penstock._check_option(_options);
    return (penstock._send_checked(
        (select b.queue from penstock._compat_target(_schema_id) as b), array[convert_to(_message_json::text, 'UTF8')],
        array['application/json'],
        jsonb_build_array(_options || jsonb_build_object(
            'created_by', penstock._check_free_name('created_by', coalesce(_created_by, 'system'))
        )),
        true, pg_current_xact_id()
    ))[1]::uuid;
end
$$;

create or replace function penstock._compat_dequeue(
    _schema_id integer, _client_id text, _lease_seconds integer, out msg_id uuid, out expires timestamptz, out msg_json json
)
language plpgsql as $$
declare
    taken record;
    _seconds double precision := case
        when _lease_seconds >= 10 then _lease_seconds
        else penstock._get_setting(_schema_id, 'lease_duration')
    end;
begin
    if coalesce(_client_id, '') = '' then
        raise exception using errcode = 'PN101', message = 'client_id is empty',
            hint = 'Every client needs a name of its own: only the one that took a message may settle it.';
    end if;
    perform penstock._check_name('client_id', _client_id);
    select r.id, r.token, r.lease_ends_at, r.payload, r.content_type into taken
    from penstock._compat_target(_schema_id) as b, penstock.receive(b.queue, b."group", _client_id, 1, _seconds) as r;
    if found then
        msg_id := taken.id;
        expires := taken.lease_ends_at;
        msg_json := penstock.payload_json(taken.payload, taken.content_type);
        perform penstock._compat_record_note(
            _schema_id, msg_id, 2, _client_id, 'dequeued. lease seconds: ' || _seconds, taken.token
        );
    else
        msg_id := '00000000-0000-0000-0000-000000000000';
        msg_json := '{}';
        perform penstock._compat_record_note(_schema_id, msg_id, 91, _client_id, 'no items to dequeue');
    end if;
end
$$;

-- Settle for the client that holds the lease. Nothing is revealed about the lease of another client.
create or replace function penstock._compat_settle_as(
    _schema_id integer, _msg_id uuid, _client text, _event text, _reason text
) returns void
language plpgsql as $$
declare
    b record := penstock._compat_target(_schema_id);
    live penstock.compat_live := penstock._compat_find(b.queue_id, _msg_id);
    _delay double precision;
begin
    if _event = 'nak' then
        _delay := penstock._compat_offset(_schema_id, live.attempt);
    end if;
    if live.state = 'leased' and live.consumer = _client then
        if penstock._compat_settle(b.queue_id, live, _event, _client, _reason, _delay) then
            return;
        end if;
    end if;
    perform penstock._check_isolation('a settle that finds no lease');
    raise exception using errcode = 'PN201',
        message = format('Client did not own impacted queue item or lease expired: %s', _msg_id),
        hint = 'Settle with the client_id that dequeued the message, before the time that it was given as expires.';
end
$$;

-- Postpone a message, whether or not somebody processes it. A waiting message gets another time; a ready one is leased
-- first, so that its audit trail stays legal. A time in the past means at once, and moves the expiry back by as much.
create or replace function penstock._compat_reschedule(
    _schema_id integer, _msg_id uuid, _delay_seconds integer, _done_by text, _reason_why text
) returns void
language plpgsql as $$
declare
    b record := penstock._compat_target(_schema_id);
    live penstock.compat_live := penstock._compat_find(b.queue_id, _msg_id);
    _asked integer := coalesce(nullif(_delay_seconds, 0), 3600);
    _delay double precision := greatest(_asked, 0);
    _by text := coalesce(_done_by, 'system');
    _reason text := format('%s. Seconds delayed: %s', coalesce(_reason_why, 'Rescheduled'), _asked);
    _is_done boolean := false;
begin
    if live.state = 'leased' then
        _is_done := penstock._compat_settle(b.queue_id, live, 'reschedule', _by, _reason, _delay);
    elsif live.state = 'held' then
        perform penstock._compat_wait(b.queue_id, b.group_id, live, _delay, _asked);
        perform penstock._compat_record_note(_schema_id, _msg_id, 4, _by, _reason);
        _is_done := true;
    end if;
    if not _is_done and live.position is not null then
        live.token := penstock._compat_lease(b.queue_id, live.position, _by, 60);
        _is_done := live.token is not null
            and penstock._compat_settle(b.queue_id, live, 'reschedule', _by, _reason, _delay);
    end if;
    if not _is_done then
        perform penstock._check_isolation('a reschedule that finds no message');
        raise exception using errcode = 'PN300',
            message = format('queue %s has no live message %s', penstock._quote_value(b.queue), _msg_id),
            hint = 'message_history and dead_letter have what has ended.';
    elsif _asked < 0 and live.state <> 'held' then
        update penstock.tracked set expires_at = expires_at + penstock._microseconds(_asked)
        where group_id = b.group_id and position = live.position;
    end if;
end
$$;

-- Give a waiting message another time; its expiry moves by _seconds.
create or replace function penstock._compat_wait(
    _queue_id integer, _group_id integer, live penstock.compat_live, _delay double precision, _seconds double precision
) returns void
language plpgsql as $$
declare
    _at bigint := penstock.now_us() + penstock._microseconds(_delay);
    _shift bigint := penstock._microseconds(_seconds);
begin
    if live.position is null then
        update penstock.held set available_at = _at, expires_at = expires_at + _shift
        where queue_id = _queue_id and id = live.id;
    else
        update penstock.tracked set until_at = _at, expires_at = expires_at + _shift, attempt = 0
        where group_id = _group_id and position = live.position and state = 'held';
    end if;
    perform penstock._wake_receivers(_queue_id);
end
$$;

create or replace function penstock._compat_add_audit(
    _schema_id integer, _msg_id uuid, _state_id integer, _audit_by text, _reason_why text
) returns void
language plpgsql as $$
begin
    if not exists (select 1 from penstock.compat_state where message_state_id = _state_id) then
        raise exception using errcode = 'PN100', message = format('there is no state %s', _state_id),
            hint = 'The table message_state has the states.';
    elsif _msg_id is null then
        raise exception using errcode = 'PN100', message = 'msg_id is null', hint = 'Name the message it is about.';
    end if;
    perform penstock._compat_record_note(_schema_id, _msg_id, _state_id, coalesce(_audit_by, 'system'), coalesce(_reason_why, ''));
end
$$;

create or replace function penstock._compat_record_note(
    _schema_id integer, _msg_id uuid, _state_id integer, _by text, _reason text, _token bigint default null
) returns void
language sql as $$
    insert into penstock.compat_note (entry, schema_id, at, message_id, state_id, by, reason, token)
    values (nextval('penstock.entry'), _schema_id, penstock.now_us(), _msg_id, _state_id, _by, _reason, _token)
$$;

-- Send a copy of a message that has ended, and record the other id in both audit trails.
create or replace function penstock._compat_recover(
    _schema_id integer, _msg_id uuid, _delay_seconds integer, _recovered_by text, _item_ttl integer, _reason_why text,
    _from_history boolean
) returns void
language plpgsql as $$
declare
    _by text := coalesce(_recovered_by, 'system');
    _position bigint;
    _payload json;
    _copy uuid;
begin
    select (penstock._locate_message(q, _msg_id)).position into _position
    from penstock.compat_schema as d join penstock.queue as q using (queue_id) where d.schema_id = _schema_id;
    if _from_history then
        select h.message_json into _payload from penstock.compat_history as h
        where h.schema_id = _schema_id and h.position = _position limit 1;
    else
        select l.message_json into _payload from penstock.compat_dead_letter as l
        where l.schema_id = _schema_id and l.position = _position;
    end if;
    if not found then
        raise exception using errcode = 'PN300',
            message = format('No %s found with Id: %s', case when _from_history then 'Message History' else 'Dead Letter' end, _msg_id),
            hint = format('The table %s has the messages that can be sent again.',
                          case when _from_history then 'message_history' else 'dead_letter' end);
    end if;
    _copy := penstock._compat_enqueue(_schema_id, _payload, null, _delay_seconds, _by, _item_ttl);
    perform penstock._compat_record_note(_schema_id, _copy, 32, _by, format('%s Previous uuid: %s', _reason_why, _msg_id));
    perform penstock._compat_record_note(_schema_id, _msg_id, 32, _by, format('%s New uuid: %s', _reason_why, _copy));
end
$$;

-- The delay of a retry by its number: at most the policy's backoff_max_seconds, before the jitter.
create or replace function penstock._compat_offset(_schema_id integer, _retries integer) returns integer
language sql volatile as $$
    select least(
            q.backoff_max_seconds, q.backoff_base_seconds * q.backoff_factor ^ least(greatest(_retries, 0), 64)
        )::integer
        + penstock._random_between(
            penstock._get_setting(_schema_id, 'backoff_jitter_min')::integer, penstock._get_setting(_schema_id, 'backoff_jitter_max')::integer
        )
    from penstock.compat_schema as d join penstock.queue as q using (queue_id)
    where d.schema_id = _schema_id
$$;

create or replace function penstock._random_between(_lowest integer, _highest integer) returns integer
language sql volatile as $$
    select floor(penstock._random_number() * (_highest - _lowest + 1) + _lowest)::integer
$$;

create or replace function penstock._compat_reset(_schema_id integer) returns void
language plpgsql as $$
begin
    perform penstock.flush((select b.queue from penstock._compat_target(_schema_id) as b));
    delete from penstock.compat_note where schema_id = _schema_id;
end
$$;

-- Apply the time that has passed to the messages of this queue.
create or replace function penstock._compat_sweep_queue(_schema_id integer) returns void
language sql as $$
    select penstock.sweep_queue(b.queue) from penstock._compat_target(_schema_id) as b
$$;

-- Retention of audit rows: by the settings, or once with another number of days.
create or replace function penstock._compat_clean_notes(_schema_id integer, _days integer) returns void
language sql as $$
    delete from penstock.compat_note
    where schema_id = _schema_id
        and at < penstock.now_us() - penstock._microseconds(86400 * case
            when _days > 0 then _days
            else penstock._get_setting(_schema_id, 'audit_retention')
        end)
$$;

create or replace function penstock._compat_clean_dead(_schema_id integer, _days integer) returns void
language plpgsql as $$
declare
    b record := penstock._compat_target(_schema_id);
    _before timestamptz := penstock.to_time(penstock.now_us()) - interval '1 day' * case
        when _days > 0 then _days
        else penstock._get_setting(_schema_id, 'dead_letter_retention')
    end;
begin
    perform penstock.purge(
        b.queue, array(select l.message_id from penstock.compat_dead_letter as l where l.schema_id = _schema_id and l.dead_on < _before),
        b."group"
    );
end
$$;

create or replace function penstock._compat_clean_history(_schema_id integer, _days integer) returns void
language plpgsql as $$
declare
    b record := penstock._compat_target(_schema_id);
    _usual double precision := (select history_seconds from penstock.queue where queue_id = b.queue_id);
begin
    if _days > 0 then
        update penstock.queue set history_seconds = 86400.0 * _days where queue_id = b.queue_id;
    end if;
    perform penstock.sweep_queue(b.queue);
    if _days > 0 then
        update penstock.queue set history_seconds = _usual where queue_id = b.queue_id;
    end if;
end
$$;
