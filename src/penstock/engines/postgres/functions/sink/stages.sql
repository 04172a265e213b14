-- Staging: messages are stored part by part, then sent all at once and exactly once; and the ledger that records it.

-- Stage a chunk of messages of one part. Plain messages share a priority and a content type; others have types and
-- options parallel to the payloads. The longest payload has _longest bytes.
create or replace function penstock.stage_chunk(
    _queue text, _key text, _part text, _ordinal integer, _payloads bytea[], _longest integer, _priority integer,
    _type text, _types text[], _options jsonb
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
begin
    perform penstock._check_size(_longest, q.max_payload_bytes);
    insert into penstock.staged (queue_id, key, part, ordinal, priority, content_type, types, options, payloads)
    values (q.queue_id, _key, _part, _ordinal, _priority, _type, _types, _options, _payloads);
end
$$;

-- Record that a part is complete.
create or replace function penstock.stage_part(_queue text, _key text, _part text, _chunks integer) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    insert into penstock.staged_part (queue_id, key, part, staged_at, chunks)
    select queue_id, _key, _part, penstock.now_us(), _chunks from penstock.queue where name = _queue
$$;

-- Send the staged messages of these parts, in that order, with an entry in the ledger; null, and nothing sent, when the
-- ledger has the entry already. Other staged messages of the key are dropped, and those that nobody released within a
-- day. Prepared writes count as sent from now on; they become visible when they are committed.
create or replace function penstock.release_staged(_queue text, _key text, _parts text[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    _tx xid8 := pg_current_xact_id();
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
    _count bigint := 0;
    _part text;
begin
    insert into penstock.ledger (kind, key, value) values ('sink', _key || '/' || _queue, '{}')
    on conflict (kind, key) do nothing;
    if not found then
        perform penstock.discard_staged(_queue, _key);
        return null;
    end if;
    perform penstock._ensure_primary_group(q);
    _count := penstock._commit_prepared_writes(q, _key, _parts);
    foreach _part in array _parts loop
        _count := _count + penstock._release_part(q, _key, _part, _tx);
    end loop;
    update penstock.ledger set value = json_build_object('count', _count, 'at', penstock.now_us())::text
    where kind = 'sink' and key = _key || '/' || _queue;
    perform penstock.discard_staged(_queue, _key);
    perform penstock._wake_receivers(q.queue_id);
    return _count;
end
$$;

-- Send the staged messages of one part. An unknown part has none.
create or replace function penstock._release_part(
    q penstock.queue, _key text, _part text, _tx xid8
) returns bigint
language plpgsql as $$
declare
    _chunks integer := (
        select chunks from penstock.staged_part where queue_id = q.queue_id and key = _key and part = _part
    );
    _shard integer := floor(penstock._random_number() * q.shards)::integer;
    _is_simple boolean := penstock._accepts_plain(q);
    _count bigint := 0;
    _some bigint;
    _priority integer;
    _lane_id integer;
    _now bigint;
    chunk penstock.staged;
begin
    if _chunks is null then
        return 0;
    end if;
    if _chunks <> (
        select count(*) from penstock.staged where queue_id = q.queue_id and key = _key and part = _part
    ) then
        raise exception using errcode = 'PN200', message = format(
            'what was put aside for queue %s under %s is gone, because the server crashed since: nothing was sent, '
            'write it again', penstock._quote_value(q.name), penstock._quote_value(_key)
        );
    end if;
    perform penstock._begin_sending(q.queue_id);
    if _is_simple then
        -- Plain messages, without looking at any of them.
        for _priority in
            select distinct s.priority from penstock.staged as s
            where s.queue_id = q.queue_id and s.key = _key and s.part = _part and s.priority is not null
        loop
            _lane_id := penstock._ensure_lane(q.queue_id, _priority, _shard);
            _now := penstock.now_us();
            insert into penstock.log (position, tx, created_at, lane_id, content_type, payload)
            select nextval('penstock.position'), _tx, _now, _lane_id, coalesce(s.type, s.content_type), s.payload
            from (
                select c.content_type, one.payload, one.type from (
                    select * from penstock.staged
                    where queue_id = q.queue_id and key = _key and part = _part and priority = _priority
                    order by ordinal
                ) as c cross join lateral unnest(c.payloads, c.types) as one (payload, type)
            ) as s;
            get diagnostics _some = row_count;
            _count := _count + _some;
        end loop;
    end if;
    for chunk in
        select * from penstock.staged as s
        where s.queue_id = q.queue_id and s.key = _key and s.part = _part and not (_is_simple and s.priority is not null)
        order by s.ordinal
    loop
        perform penstock._send_rows(
            q, chunk.payloads, coalesce(chunk.types, array_fill(chunk.content_type, array[cardinality(chunk.payloads)])),
            coalesce(chunk.options, (
                select jsonb_agg(jsonb_build_object('priority', chunk.priority))
                from generate_series(1, cardinality(chunk.payloads))
            )), _tx
        );
        _count := _count + cardinality(chunk.payloads);
    end loop;
    return _count;
end
$$;

-- Drop staged messages and prepared writes of a key, and what nobody released within a day.
create or replace function penstock.discard_staged(_queue text, _key text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    update penstock.prepared_write set fate = 'dropped'
    where queue_id = (select queue_id from penstock.queue where name = _queue) and key = _key and fate is null;
    delete from penstock.staged
    where queue_id = (select queue_id from penstock.queue where name = _queue) and key = _key;
    delete from penstock.staged_part
    where queue_id = (select queue_id from penstock.queue where name = _queue) and key = _key;
    with old as (
        delete from penstock.staged_part where staged_at < penstock.now_us() - 86400000000
        returning queue_id, key
    )
    delete from penstock.staged as s using old where s.queue_id = old.queue_id and s.key = old.key
$$;

-- Put and remove entries of a kind if every expected key has its expected value; otherwise false, and nothing is
-- changed. The changes are JSON objects of text; null is expected of a missing key.
create or replace function penstock.record_facts(_kind text, _puts jsonb, _removes text[], _expect jsonb) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- Serialise writers per kind, so that compare-and-set also holds for keys that do not exist yet.
    perform pg_advisory_xact_lock(hashtextextended('penstock ledger ' || _kind, 0));
    if exists (
        select 1 from jsonb_each_text(_expect) as e
        left join penstock.ledger as l on l.kind = _kind and l.key = e.key
        where l.value is distinct from e.value
    ) then
        return false;
    end if;
    delete from penstock.ledger where kind = _kind and key = any (_removes);
    insert into penstock.ledger (kind, key, value) select _kind, p.key, p.value from jsonb_each_text(_puts) as p
    on conflict (kind, key) do update set value = excluded.value;
    return true;
end
$$;
