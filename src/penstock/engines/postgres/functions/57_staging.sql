-- Messages put aside part by part, then sent all at once and only once; and the ledger that remembers it.

-- Put messages aside under a key, as one part of several; options are an array parallel to the payloads, or null.
create or replace function penstock.stage(
    _queue text, _key text, _part text, _payloads bytea[], _types text[], _options jsonb
) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
    _now bigint := penstock.now_us();
begin
    perform penstock._check_sizes(_payloads, q.max_payload_bytes);
    insert into penstock.staged (queue_id, key, part, staged_at, content_type, options, payload)
    select q.queue_id, _key, _part, _now, one.content_type, nullif(_options -> (one.place::integer - 1), '{}'), one.payload
    from unnest(_payloads, _types) with ordinality as one (payload, content_type, place)
    order by one.place;
    return cardinality(_payloads);
end
$$;

-- Send what these parts have put aside, in that order, with an entry in the ledger; null, and nothing sent, when the
-- ledger has the entry already. What else was put aside under the key is dropped, and what nobody released in a day.
create or replace function penstock.release_staged(_queue text, _key text, _parts text[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    _tx xid8 := pg_current_xact_id();
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', _queue));
    _now bigint := penstock.now_us();
    _segment smallint := penstock._segment();
    _count bigint := 0;
    _lane_id integer;
    _part text;
    _some integer;
    chunk record;
begin
    insert into penstock.ledger (kind, key, value) values ('sink', _key || '/' || _queue, '{}')
    on conflict (kind, key) do nothing;
    if not found then
        perform penstock.discard_staged(_queue, _key);
        return null;
    end if;
    perform penstock._ensure_primary(q);
    foreach _part in array _parts loop
        if q.delay_seconds = 0 and q.ttl_seconds is null and not q.ordered and not exists (
            select 1 from penstock.staged
            where queue_id = q.queue_id and key = _key and part = _part and options is not null
        ) then
            -- Plain messages, without looking at any of them.
            _lane_id := penstock._lane(q.queue_id, 0, floor(penstock._random() * q.shards)::integer);
            insert into penstock.log (seq, tx, created_at, lane_id, segment, content_type, payload)
            select nextval('penstock.position'), _tx, _now, _lane_id, _segment, s.content_type, s.payload
            from (
                select * from penstock.staged
                where queue_id = q.queue_id and key = _key and part = _part order by staged_id
            ) as s;
            get diagnostics _some = row_count;
            _count := _count + _some;
        else
            for chunk in
                select array_agg(s.payload order by s.staged_id) as payloads,
                    array_agg(s.content_type order by s.staged_id) as types,
                    jsonb_agg(coalesce(s.options, '{}') order by s.staged_id) as options
                from (
                    select *, (row_number() over (order by staged_id) - 1) / 1000 as piece
                    from penstock.staged where queue_id = q.queue_id and key = _key and part = _part
                ) as s
                group by s.piece order by s.piece
            loop
                perform penstock._send(q, chunk.payloads, chunk.types, chunk.options, _tx, _segment);
                _count := _count + cardinality(chunk.payloads);
            end loop;
        end if;
    end loop;
    update penstock.ledger set value = json_build_object('count', _count, 'at', _now)::text
    where kind = 'sink' and key = _key || '/' || _queue;
    perform penstock.discard_staged(_queue, _key);
    perform penstock._wake(q.queue_id);
    return _count;
end
$$;

-- Drop what was put aside under a key, and what nobody released in a day.
create or replace function penstock.discard_staged(_queue text, _key text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    delete from penstock.staged
    where queue_id = (select queue_id from penstock.queue where name = _queue) and key = _key
        or staged_at < penstock.now_us() - 86400000000
$$;

-- Put and remove entries of a kind if every expected key has its expected value; false, and nothing changed, otherwise.
-- The changes are JSON objects of text; null is expected of what is not there.
create or replace function penstock.record_facts(_kind text, _puts jsonb, _removes text[], _expect jsonb) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- One at a time for each kind: what is expected must not change meanwhile, not even by coming into being.
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
