-- (new) -> ready or held: appending messages to the log.

-- Append plain messages of one content type. The first may have an id chosen by the sender. Returns the time and the
-- positions: only the first when they are contiguous; or ids, when the policy needs more work per message or the first
-- id is known already.
create or replace function penstock.append(
    queue text, payloads bytea[], content_type text default null, notify boolean default true, first_id uuid default null,
    out created_at bigint, out first bigint, out positions bigint[], out ids text[]
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
#variable_conflict use_variable
declare
    -- Before any position: a reader that does not see this transaction yet has not passed its positions either.
    _tx xid8 := pg_current_xact_id();
    _n integer := cardinality(payloads);
    _positions bigint[];
    q record;
begin
    if coalesce(_n, 0) = 0 then
        perform penstock._check_messages(payloads, '{}', null);
        ids := '{}';
        return;
    elsif array_position(payloads, null) is not null then
        perform penstock._refuse_null(payloads);
    end if;
    select u.queue_id, u.max_payload_bytes, l.lane_id,
        u.delay_seconds = 0 and u.ttl_seconds is null and u.shards = 1
            and (u.primary_group is null or u.primary_group_id is not null) and not u.announces as is_simple,
        s.system_identifier::text as cluster
    into q
    from penstock.queue as u
    left join penstock.lane as l on l.queue_id = u.queue_id and l.priority = 0 and l.shard = 0
    cross join penstock.store as s
    where u.name = append.queue;
    if q.cluster is distinct from current_setting('penstock.cluster', true) then
        perform penstock._check_cluster();
    end if;
    if q.is_simple is not true or q.lane_id is null or penstock._has_position(first_id) then
        ids := penstock._send_plain(queue, payloads, content_type, first_id, notify, _tx);
        return;
    end if;
    if pg_column_size(payloads) > q.max_payload_bytes then
        perform penstock._check_size(max(octet_length(one)), q.max_payload_bytes) from unnest(payloads) as one;
    end if;
    perform penstock._begin_sending(q.queue_id);
    created_at := penstock.now_us();
    if _n = 1 then
        first := nextval('penstock.position');
        _positions := array[first];
    else
        -- All at once, so that they mostly follow each other: a set of positions without gaps is two numbers.
        select array_agg(nextval('penstock.position')) into _positions from generate_series(1, _n);
        first := _positions[1];
        if _positions[_n] - first <> _n - 1 then
            positions := _positions;
        end if;
    end if;
    if first_id is not null then
        insert into penstock.identity (queue_id, id, position) values (q.queue_id, first_id, first)
        on conflict (queue_id, id) do nothing;
        if not found then
            ids := penstock._send_plain(queue, payloads, content_type, first_id, notify, _tx);
            return;
        end if;
    end if;
    insert into penstock.log (position, tx, created_at, lane_id, id, content_type, payload)
    -- Two unnest in a list of columns follow each other row by row, and cost less than a scan of them.
    select one.position, _tx, created_at, q.lane_id, case when one.position = first then first_id end, content_type,
        one.payload
    from (select unnest(_positions) as position, unnest(payloads) as payload) as one;
    if notify and penstock._somebody_listens() then
        perform penstock._send_notification('penstock', q.queue_id::text);
    end if;
end
$$;

-- Whether an id contains a position that was assigned, so that the store may have generated it.
create or replace function penstock._has_position(_id uuid) returns boolean
language sql volatile as $$
    select ('x' || right(_id::text, 12))::bit(48)::bigint <= penstock._last_position()
$$;

-- Send plain messages the way messages with options are sent.
create or replace function penstock._send_plain(
    _queue text, _payloads bytea[], _type text, _first_id uuid, _notify boolean, _tx xid8
) returns text[]
language sql volatile as $$
    select penstock._send_checked(
        _queue, _payloads, array_fill(_type, array[cardinality(_payloads)]),
        jsonb_build_array(jsonb_build_object('id', _first_id)), _notify, _tx
    )
$$;

-- Send messages with options, an array of objects parallel to the payloads. Returns the ids in the same order. A
-- message with `is_exact` and the id of another payload is refused.
create or replace function penstock.send_messages(
    queue text, payloads bytea[], content_types text[], options jsonb, notify boolean default true
) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    _tx xid8 := pg_current_xact_id();
begin
    perform penstock._check_messages(payloads, content_types, options);
    return penstock._send_checked(queue, payloads, content_types, options, notify, _tx);
end
$$;

create or replace function penstock._check_size(_size integer, _most integer) returns void
language plpgsql as $$
begin
    if _size > _most then
        raise exception using errcode = 'PN105', message = format(
            'payload has %s bytes: this queue takes at most %s (max_payload_bytes)', _size, _most
        );
    end if;
end
$$;

create or replace function penstock._send_checked(
    _queue text, _payloads bytea[], _types text[], _options jsonb, _notify boolean, _tx xid8
) returns text[]
language plpgsql as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
    _ids text[];
begin
    perform penstock._check_size(max(octet_length(one)), q.max_payload_bytes) from unnest(_payloads) as one;
    _ids := penstock._send_rows(q, _payloads, _types, _options, _tx);
    if _notify then
        perform penstock._wake_receivers(q.queue_id);
    end if;
    return _ids;
end
$$;

-- Send messages whose sizes were checked: hold them or append them to their lanes.
create or replace function penstock._send_rows(
    q penstock.queue, _payloads bytea[], _types text[], _options jsonb, _tx xid8
) returns text[]
language plpgsql as $$
declare
    _now bigint := penstock.now_us();
    _salt integer := (select salt from penstock.store);
    _group_id integer := penstock._ensure_primary_group(q);
    _any_shard integer := case when q.shards = 1 then 0 else floor(penstock._random_number() * q.shards)::integer end;
    _ids text[] := array_fill(null::text, array[cardinality(_payloads)]);
    _positions bigint[];
    _addresses text[] := '{}';
    m record;
    b penstock.batch;
    _message penstock.message_row;
    _available_at bigint;
    _shard integer;
    _held_id bigint;
    _id uuid;
begin
    perform penstock._check_cluster();
    q.primary_group_id := _group_id;
    perform penstock._begin_sending(q.queue_id);
    select array_agg(nextval('penstock.position')) into _positions from generate_series(1, cardinality(_payloads));
    for m in
        select place::integer as place, payload, coalesce((o ->> 'priority')::integer, 0) as priority,
            (o ->> 'delay_seconds')::double precision as delay_seconds,
            (o ->> 'ttl_seconds')::double precision as ttl_seconds,
            (o ->> 'deadline_at')::bigint as deadline_at, o ->> 'address' as address, o ->> 'key' as key,
            o ->> 'headers' as headers, (o ->> 'id')::uuid as id, o ->> 'created_by' as created_by,
            o ->> 'batch' as batch, (o ->> 'batch_after')::bigint as batch_after, o ->> 'batch_queue' as batch_queue,
            (o ->> 'is_exact')::boolean as is_exact
        from unnest(_payloads) with ordinality as one (payload, place)
        cross join lateral (select _options -> (place::integer - 1)) as option (o)
        order by place
    loop
        b := null;
        _message := null;
        if m.id is not null then
            _ids[m.place] := m.id;
            if penstock._register_id(q, m.id, _positions[m.place], null) is not true then
                if m.is_exact then
                    perform penstock._check_same_payload(q, m.id, m.payload, _types[m.place]);
                end if;
                continue;
            end if;
        end if;
        if m.address is not null then
            if m.address = any (_addresses) then
                perform penstock._refuse_address(q, m.address, penstock._live_message_at(q, m.address, _now));
            end if;
            _addresses := _addresses || m.address;
        end if;
        if m.batch is not null then
            b := penstock._join_batch_of_queue(q, m.batch, m.batch_after, m.batch_queue, _now);
            insert into penstock.batch_join (batch_id, n) values (b.batch_id, 1);
        end if;
        _available_at := _now + penstock._microseconds(coalesce(m.delay_seconds, q.delay_seconds));
        _message.position := _positions[m.place];
        _message.priority := m.priority;
        _message.created_at := _now;
        _message.id := m.id;
        _message.content_type := _types[m.place];
        _message.headers := m.headers;
        _message.expires_at := _now + penstock._microseconds(coalesce(m.ttl_seconds, q.ttl_seconds));
        _message.deadline_at := m.deadline_at;
        _message.address := m.address;
        _message.key := m.key;
        _message.batch_id := b.batch_id;
        _message.created_by := nullif(m.created_by, 'system');
        _message.payload := m.payload;
        if m.deadline_at <= _now then
            perform penstock._widen_expiry(q.queue_id, null, m.deadline_at - 1);
        end if;
        -- Messages without a key are spread: each shard gets as many as the others, and neighbours stay together.
        _shard := case when m.key is null and not q.ordered
            then (_any_shard + (m.place - 1)::bigint * least(q.shards, cardinality(_payloads)) / cardinality(_payloads))
                % q.shards
            else penstock._key_shard(coalesce(m.key, ''), q.shards) end;
        if b.state = 'open' or _available_at > _now then
            _id := coalesce(m.id, penstock._random_id(_now));
            insert into penstock.held (
                queue_id, priority, shard, available_at, waiting, id, created_at, content_type, headers, expires_at,
                deadline_at, address, key, batch_id, created_by, payload
            ) values (
                q.queue_id, m.priority, _shard, _available_at, coalesce(b.state = 'open', false), _id, _now,
                _types[m.place], m.headers, _message.expires_at, m.deadline_at, m.address, m.key, b.batch_id,
                _message.created_by, m.payload
            ) returning held_id into _held_id;
            if m.id is null then
                perform penstock._register_id(q, _id, null, _held_id);
            else
                update penstock.identity set position = null, held_id = _held_id where queue_id = q.queue_id and id = _id;
            end if;
            if m.address is not null then
                perform penstock._reserve_address(q, m.address, _id, null, _now);
            end if;
        else
            _message.lane_id := penstock._ensure_lane(q.queue_id, m.priority, _shard);
            _id := coalesce(m.id, penstock.made_id(_now, _salt, _message.position));
            if m.address is not null then
                perform penstock._reserve_address(q, m.address, _id, _message.position, _now);
            end if;
            perform penstock._append_message(_message, _tx);
            if q.announces then
                perform penstock._compat_notify_new(array[_message.position]);
            end if;
            if b.batch_id is not null then
                insert into penstock.batch_member (position, batch_id) values (_message.position, b.batch_id);
            end if;
        end if;
        _ids[m.place] := _id;
    end loop;
    return _ids;
end
$$;

-- Append one message to the log. A lane that has messages with an expiry, a deadline or a batch is read row by row.
create or replace function penstock._append_message(m penstock.message_row, _tx xid8) returns void
language plpgsql as $$
begin
    insert into penstock.log (
        position, tx, created_at, lane_id, id, content_type, headers, expires_at, deadline_at, address, key,
        batch_id, created_by, available_at, payload
    ) values (
        m.position, _tx, m.created_at, m.lane_id, m.id, m.content_type, m.headers, m.expires_at, m.deadline_at,
        m.address, m.key, m.batch_id, m.created_by, m.available_at, m.payload
    );
    if coalesce(m.expires_at, m.deadline_at, m.batch_id) is not null then
        insert into penstock.checked_lane (lane_id)
        select m.lane_id where not exists (select 1 from penstock.checked_lane where lane_id = m.lane_id);
    end if;
end
$$;

-- The shard of a key: the CRC-32 of its UTF-8 bytes modulo the number of shards, as in every engine.
create or replace function penstock._key_shard(_key text, _shards integer) returns integer
language plpgsql immutable as $$
declare
    _bytes bytea := convert_to(_key, 'UTF8');
    _crc bigint := 4294967295;
begin
    if _shards = 1 then
        return 0;
    end if;
    for place in 0..octet_length(_bytes) - 1 loop
        _crc := _crc # get_byte(_bytes, place);
        for bit in 1..8 loop
            _crc := case when _crc & 1 = 1 then (_crc >> 1) # 3988292384 else _crc >> 1 end;
        end loop;
    end loop;
    return ((_crc # 4294967295) % _shards)::integer;
end
$$;
