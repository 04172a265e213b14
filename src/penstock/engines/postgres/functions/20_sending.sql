-- (new) -> ready or held: putting messages in.

-- Plain messages, all of one content type: nothing is done per message but to write it. Gives back when they were sent
-- and their positions: the first when they follow each other, else all; or ids, when the policy asks for more.
create or replace function penstock.append(
    queue text, payloads bytea[], content_type text default null, notify boolean default true,
    out created_at bigint, out first bigint, out seqs bigint[], out ids text[]
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
#variable_conflict use_variable
declare
    -- Before any position: whoever does not see this transaction yet has not passed its positions either.
    _tx xid8 := pg_current_xact_id();
    _n integer := cardinality(payloads);
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
    if q.is_simple is not true or q.lane_id is null then
        ids := penstock._put(queue, payloads, array_fill(content_type, array[_n]), null, notify, _tx);
        return;
    end if;
    if pg_column_size(payloads) > q.max_payload_bytes then
        perform penstock._check_sizes(payloads, q.max_payload_bytes);
    end if;
    perform penstock._begin_sending(q.queue_id);
    created_at := penstock.now_us();
    if _n = 1 then
        first := nextval('penstock.position');
        insert into penstock.log (seq, tx, created_at, lane_id, content_type, payload)
        values (first, _tx, created_at, q.lane_id, content_type, payloads[1]);
    else
        -- All at once, so that they mostly follow each other: a set of positions without gaps is two numbers.
        select array_agg(nextval('penstock.position')) into seqs from generate_series(1, _n);
        if seqs[_n] - seqs[1] = _n - 1 then
            first := seqs[1];
            seqs := null;
            insert into penstock.log (seq, tx, created_at, lane_id, content_type, payload)
            select first + place - 1, _tx, created_at, q.lane_id, content_type, payload
            from unnest(payloads) with ordinality as one (payload, place);
        else
            insert into penstock.log (seq, tx, created_at, lane_id, content_type, payload)
            select seq, _tx, created_at, q.lane_id, content_type, payload
            from unnest(payloads, seqs) as one (payload, seq);
        end if;
    end if;
    if notify and penstock._somebody_listens() then
        perform penstock._notify('penstock', q.queue_id::text);
    end if;
end
$$;

-- Messages with options, which are an array of objects parallel to the payloads; the ids in the same order. A message that
-- `is_exact` and has the id of another payload is refused.
create or replace function penstock.put(
    queue text, payloads bytea[], content_types text[], options jsonb, notify boolean default true
) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    _tx xid8 := pg_current_xact_id();
begin
    perform penstock._check_messages(payloads, content_types, options);
    return penstock._put(queue, payloads, content_types, options, notify, _tx);
end
$$;

create or replace function penstock._check_sizes(_payloads bytea[], _most integer) returns void
language plpgsql as $$
declare
    _size integer;
begin
    select max(octet_length(one)) into _size from unnest(_payloads) as one;
    if _size > _most then
        raise exception using errcode = 'PN105', message = format(
            'payload has %s bytes: this queue takes at most %s (max_payload_bytes)', _size, _most
        );
    end if;
end
$$;

create or replace function penstock._put(
    _queue text, _payloads bytea[], _types text[], _options jsonb, _notify boolean, _tx xid8
) returns text[]
language plpgsql as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
    _ids text[];
begin
    perform penstock._check_sizes(_payloads, q.max_payload_bytes);
    _ids := penstock._send(q, _payloads, _types, _options, _tx);
    if _notify then
        perform penstock._wake(q.queue_id);
    end if;
    return _ids;
end
$$;

-- Send what was found small enough before: which messages are held, which are appended, and to which lanes.
create or replace function penstock._send(
    q penstock.queue, _payloads bytea[], _types text[], _options jsonb, _tx xid8
) returns text[]
language plpgsql as $$
declare
    _now bigint := penstock.now_us();
    _salt integer := (select salt from penstock.store);
    _group_id integer := penstock._ensure_primary(q);
    _any_shard integer := case when q.shards = 1 then 0 else floor(penstock._random() * q.shards)::integer end;
    _ids text[] := array_fill(null::text, array[cardinality(_payloads)]);
    _seqs bigint[];
    _addresses text[] := '{}';
    m record;
    b penstock.batch;
    _message penstock.flight;
    _available_at bigint;
    _shard integer;
    _held_id bigint;
    _id uuid;
begin
    perform penstock._check_cluster();
    q.primary_group_id := _group_id;
    perform penstock._begin_sending(q.queue_id);
    select array_agg(nextval('penstock.position')) into _seqs from generate_series(1, cardinality(_payloads));
    for m in
        select place::integer as place, payload, coalesce((o ->> 'priority')::integer, 0) as priority,
            (o ->> 'delay_seconds')::double precision as delay_seconds,
            (o ->> 'ttl_seconds')::double precision as ttl_seconds,
            (o ->> 'deadline_at')::bigint as deadline_at, o ->> 'address' as address, o ->> 'key' as key,
            o ->> 'headers' as headers, (o ->> 'id')::uuid as id, o ->> 'created_by' as created_by,
            o ->> 'batch' as batch, (o ->> 'batch_after')::bigint as batch_after, (o ->> 'is_exact')::boolean as is_exact
        from unnest(_payloads) with ordinality as one (payload, place)
        cross join lateral (select _options -> (place::integer - 1)) as option (o)
        order by place
    loop
        b := null;
        _message := null;
        if m.id is not null then
            _ids[m.place] := m.id;
            if penstock._identify(q, m.id, _seqs[m.place], null) is not true then
                if m.is_exact then
                    perform penstock._check_same(q, m.id, m.payload, _types[m.place]);
                end if;
                continue;
            end if;
        end if;
        if m.address is not null then
            if m.address = any (_addresses) then
                perform penstock._refuse_address(q, m.address, penstock._live_at(q, m.address, _now));
            end if;
            _addresses := _addresses || m.address;
        end if;
        if m.batch is not null then
            b := penstock._joined(q, m.batch, m.batch_after, _now);
            insert into penstock.joining (batch_id, n) values (b.batch_id, 1);
        end if;
        _available_at := _now + penstock._us(coalesce(m.delay_seconds, q.delay_seconds));
        _message.seq := _seqs[m.place];
        _message.priority := m.priority;
        _message.created_at := _now;
        _message.id := m.id;
        _message.content_type := _types[m.place];
        _message.headers := m.headers;
        _message.expires_at := _now + penstock._us(coalesce(m.ttl_seconds, q.ttl_seconds));
        _message.deadline_at := m.deadline_at;
        _message.address := m.address;
        _message.key := m.key;
        _message.batch_id := b.batch_id;
        _message.created_by := nullif(m.created_by, 'system');
        _message.payload := m.payload;
        if m.deadline_at <= _now then
            perform penstock._look_back(q.queue_id, null, m.deadline_at - 1);
        end if;
        _shard := case when m.key is null and not q.ordered then _any_shard
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
                perform penstock._identify(q, _id, null, _held_id);
            else
                update penstock.identity set seq = null, held_id = _held_id where queue_id = q.queue_id and id = _id;
            end if;
            if m.address is not null then
                perform penstock._take_address(q, m.address, _id, null, _now);
            end if;
        else
            _message.lane_id := penstock._lane(q.queue_id, m.priority, _shard);
            _id := coalesce(m.id, penstock.made_id(_now, _salt, _message.seq));
            if m.address is not null then
                perform penstock._take_address(q, m.address, _id, _message.seq, _now);
            end if;
            perform penstock._write(_message, _tx);
            if q.announces then
                perform penstock._door_announce(array[_message.seq]);
            end if;
            if b.batch_id is not null then
                insert into penstock.member (seq, batch_id) values (_message.seq, b.batch_id);
            end if;
        end if;
        _ids[m.place] := _id;
    end loop;
    return _ids;
end
$$;

-- Write one message at the end of the log. A lane that has messages which may be over is read with care.
create or replace function penstock._write(m penstock.flight, _tx xid8) returns void
language plpgsql as $$
begin
    insert into penstock.log (
        seq, tx, created_at, lane_id, id, content_type, headers, expires_at, deadline_at, address, key,
        batch_id, created_by, available_at, payload
    ) values (
        m.seq, _tx, m.created_at, m.lane_id, m.id, m.content_type, m.headers, m.expires_at, m.deadline_at,
        m.address, m.key, m.batch_id, m.created_by, m.available_at, m.payload
    );
    if coalesce(m.expires_at, m.deadline_at, m.batch_id) is not null then
        insert into penstock.careful (lane_id)
        select m.lane_id where not exists (select 1 from penstock.careful where lane_id = m.lane_id);
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

-- Remember an id that does not follow from a position; false when the queue has the message already.
create or replace function penstock._identify(q penstock.queue, _id uuid, _seq bigint, _held_id bigint) returns boolean
language plpgsql as $$
begin
    if _seq is not null and (penstock._locate(q, _id)).is_found then
        return false;
    end if;
    insert into penstock.identity (queue_id, id, seq, held_id) values (q.queue_id, _id, _seq, _held_id)
    on conflict (queue_id, id) do nothing;
    return found;
end
$$;

-- For senders to whom an id stands for what the message says: sending the same again is the same send, and another payload
-- is refused instead of being dropped.
create or replace function penstock._check_same(q penstock.queue, _id uuid, _payload bytea, _content_type text)
returns void
language plpgsql as $$
declare
    sent record;
begin
    select f.payload, f.content_type into sent from penstock.find(q.name, _id) as f;
    if sent.payload <> _payload
        and penstock.payload_jsonb(sent.payload, sent.content_type) <> penstock.payload_jsonb(_payload, _content_type) then
        raise exception using errcode = 'unique_violation',
            message = format('message %s of queue %s was sent before with another payload', _id, penstock._shown(q.name)),
            hint = 'Nothing was sent. A new message needs an id of its own; the same payload again is the same send.';
    end if;
end
$$;

-- Where a message is: at a position, or held. Its message may lie in the log, or only with a retry or a dead letter.
create or replace function penstock._locate(
    q penstock.queue, _id uuid, out is_found boolean, out seq bigint, out held_id bigint
)
language plpgsql stable as $$
#variable_conflict use_column
declare
    _seq bigint := ('x' || right(_id::text, 12))::bit(48)::bigint;
    _created_at bigint;
begin
    is_found := true;
    seq := _seq;
    for _created_at in
        -- With an offset: a planner that has no statistics would look for the position in each transaction of a lane.
        select m.created_at
        from (select o.* from penstock.log as o where o.seq = _seq and o.id is null offset 0) as m
        join penstock.lane as l using (lane_id)
        where l.queue_id = q.queue_id and m.seq > q.trimmed_position
        union all
        select d.created_at from penstock.dead_letter as d where d.queue_id = q.queue_id and d.seq = _seq and d.id is null
        union all
        select t.created_at from penstock.reader as g join penstock.tracked as t using (group_id)
        where g.queue_id = q.queue_id and t.seq = _seq and t.id is null
    loop
        if penstock.made_id(_created_at, _seq) = _id then
            return;
        end if;
    end loop;
    select i.seq, i.held_id into seq, held_id from penstock.identity as i
    where i.queue_id = q.queue_id and i.id = _id;
    is_found := found;
end
$$;

-- The live message of an address, if there is one: not one that is over, though nobody has written that down yet.
create or replace function penstock._live_at(q penstock.queue, _address text, _now bigint) returns uuid
language sql stable as $$
    select a.id from penstock.address as a
    where a.queue_id = q.queue_id and a.address = _address and a.outcome is null and not penstock._is_over(q, a, _now)
$$;

create or replace function penstock._is_over(q penstock.queue, a penstock.address, _now bigint) returns boolean
language sql stable as $$
    select coalesce(
        (
            select coalesce(t.expires_at <= _now, false)
            from penstock.tracked as t where t.group_id = q.primary_group_id and t.seq = a.seq
        ),
        (select m.expires_at <= _now from penstock.log as m where m.seq = a.seq),
        (
            select h.expires_at <= _now
            from penstock.identity as i join penstock.held as h using (held_id)
            where i.queue_id = q.queue_id and i.id = a.id
        ),
        false
    )
$$;

create or replace function penstock._refuse_address(q penstock.queue, _address text, _existing uuid) returns void
language plpgsql as $$
begin
    raise exception using errcode = 'PN202', detail = coalesce(_existing::text, ''), message = format(
        'address %s of queue %s already has the live message %s', penstock._shown(_address), penstock._shown(q.name),
        _existing
    );
end
$$;

-- The address belongs to this message from now on; refused while another one is live there. Two at once wait for each
-- other at the row.
create or replace function penstock._take_address(
    q penstock.queue, _address text, _id uuid, _seq bigint, _now bigint
) returns void
language plpgsql as $$
begin
    if q.primary_group is null then
        raise exception using errcode = 'PN100', message = format(
            'queue %s has no primary group: address %s has no owner', penstock._shown(q.name), penstock._shown(_address)
        );
    end if;
    insert into penstock.address as a (queue_id, address, id, seq) values (q.queue_id, _address, _id, _seq)
    on conflict (queue_id, address) do update
    set id = excluded.id, seq = excluded.seq, outcome = null, reason = null, ended_at = null
    where a.outcome is not null or a.id = excluded.id or penstock._is_over(q, a, _now);
    if not found then
        perform penstock._refuse_address(q, _address, penstock._live_at(q, _address, _now));
    end if;
end
$$;

-- Messages came into view whose time passed earlier: the next sweep looks back that far.
create or replace function penstock._look_back(_queue_id integer, _group_id integer, _since bigint) returns void
language sql as $$
    update penstock.reader set expired_upto = _since
    where queue_id = _queue_id and (_group_id is null or group_id = _group_id) and expired_upto > _since
$$;

-- Make the queue, its primary group and the lanes of these priorities. A send makes them too; but within a long transaction
-- others who need the same ones would have to wait for its end.
create or replace function penstock.prepare(queue text, priorities integer[] default '{0}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', prepare.queue));
begin
    perform penstock._ensure_primary(q);
    perform penstock._check_whole('priority', priority, 0, 1000000) from unnest(priorities) as priority;
    perform penstock._lane(q.queue_id, priority, shard)
    from unnest(priorities) as priority, generate_series(0, q.shards - 1) as shard;
end
$$;

-- The same before a send in the caller's transaction; false when another transaction, perhaps the caller's own, is making
-- one of them and does not end within a second: then the send makes what is missing.
create or replace function penstock.prepare_briefly(queue text, priorities integer[]) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
begin
    perform penstock.prepare(prepare_briefly.queue, prepare_briefly.priorities);
    return true;
exception when lock_not_available then
    return false;
end
$$;

-- Whether there is nothing to prepare, as the asking transaction sees it.
create or replace function penstock.is_prepared(queue text, priorities integer[]) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(bool_and(
        (q.primary_group is null or q.primary_group_id is not null)
        and exists (select from penstock.lane as n where (n.queue_id, n.priority, n.shard) = (q.queue_id, one.priority, shard))
    ), false)
    from penstock.queue as q
    cross join unnest(is_prepared.priorities) as one (priority)
    cross join generate_series(0, q.shards - 1) as shard
    where q.name = is_prepared.queue
$$;
