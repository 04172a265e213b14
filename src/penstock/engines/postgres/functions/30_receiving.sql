-- ready -> leased: handing messages out.

-- Up to _limit messages, best priority first, within a priority due retries before unread ones; the last row is not a
-- message: it has the token and the group. With _durable false the commit does not wait for the disk, where a receive
-- that is lost by a power cut only means a redelivery: to be used when the receive is all that the transaction does.
--
-- Unread messages are read by windows. A cursor stands in the window of what is visible in one snapshot and not in the
-- one before it; sequence values commit out of order, but a transaction that was open in the first snapshot is known by
-- its number. The receives of one lane wait for each other; with several shards a receive goes on to the next.
create or replace function penstock.take(
    _queue text, _group text, _consumer text, _limit integer, _lease_seconds double precision default null,
    _durable boolean default true
) returns setof penstock.delivery_row
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    _now bigint;
    _token bigint;
    _segment smallint := coalesce(pg_sequence_last_value('penstock.segment_number'), 0) % 4 + 1;
    _room integer := _limit;
    _ends_at bigint;
    _taken integer;
    _is_careful boolean;
    _is_fresh boolean;
    _busy integer[] := '{}';
    _promoted bigint[] := '{}';
    _segments smallint[];
    _open xid8[];
    _from xid8;
    _from_seq bigint;
    _upto xid8;
    _above bigint;
    f record;
    l record;
    c penstock.claim;
    q penstock.queue;
    g penstock.reader;
    due record;
    row_ penstock.delivery_row;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'PN100', message = format(
            'a receive needs a transaction of isolation level read committed, not %s: it would not see what others '
            'have received', current_setting('transaction_isolation')
        );
    end if;
    select u.queue_id, u.trimmed_position, u.delivery, u.ordered, u.paused, u.shards, r.group_id, r.name,
        r.used_at, r.stream_mark, coalesce(_lease_seconds, u.lease_seconds) as lease_seconds,
        (
            select array_agg(one.lane_id)
            from (
                select n.lane_id from penstock.lane as n where n.queue_id = u.queue_id and n.priority >= 0 limit 2
            ) as one
        ) as lanes
    into f
    from penstock.queue as u
    left join penstock.reader as r
        on r.queue_id = u.queue_id and r.name = coalesce(_group, u.primary_group, 'default')
    where u.name = _queue;
    if f.group_id is null or f.stream_mark is not null then
        q := penstock._ensure_queue(penstock._check_name('queue', _queue));
        g := penstock._ensure_group(q, penstock._check_name('group', coalesce(_group, penstock._default_group(q))));
        perform penstock._check_leasing(q, g);
        return query select * from penstock.take(_queue, g.name, _consumer, _limit, _lease_seconds, _durable);
        return;
    end if;
    row_.content_type := f.name;
    if f.paused then
        row_.created_at := 0;
        return next row_;
        return;
    end if;
    if not _durable and f.delivery = 'at_least_once' then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if f.ordered then
        perform pg_advisory_xact_lock(f.group_id, 0);
    elsif cardinality(f.lanes) = 1 then
        perform pg_advisory_xact_lock(f.group_id, f.lanes[1]);
    end if;
    -- After waiting for others: what they did came before.
    _now := penstock.now_us();
    -- Not the injected clock: a later receive has a greater token even if time stands still.
    _token := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    _ends_at := _now + round(f.lease_seconds * 1000000)::bigint;
    c.checked_at := 0;
    if cardinality(f.lanes) = 1 then
        c := penstock._cursor(f.group_id, f.lanes[1], _segment);
    end if;

    -- What is due, what has lapsed. Leases that ended before the last look are gone, but their rows may still lie in the
    -- index, in great numbers when somebody keeps a transaction open: they are not looked at again.
    select
        exists (
            select 1 from penstock.held where queue_id = f.queue_id and not waiting and available_at <= _now
        ) as held,
        exists (
            select 1 from penstock.tracked where group_id = f.group_id and state = 'held' and until_at <= _now
        ) as retries,
        exists (
            select 1 from penstock.lease
            where group_id = f.group_id and ends_at <= _now and ends_at > c.checked_at - 50000
        ) or exists (
            select 1 from penstock.tracked
            where group_id = f.group_id and state = 'leased' and until_at <= _now
        ) as lapsed,
        exists (select 1 from penstock.tracked where group_id = f.group_id and state = 'ready') as ready,
        exists (select 1 from penstock.skip where group_id = f.group_id) as skips
    into due;
    if due.held or due.retries or due.lapsed or due.ready or f.ordered then
        select * into q from penstock.queue where queue_id = f.queue_id;
        select * into g from penstock.reader where group_id = f.group_id;
        if due.held then
            _promoted := penstock._promote(q, greatest(_limit, 1000), _now);
        end if;
        if due.retries then
            perform penstock._make_ready(q, g, greatest(_limit, 1000), _now);
        end if;
        if due.lapsed then
            perform penstock._reclaim(q, g, null, _now);
        end if;
        if due.retries or due.lapsed or due.ready then
            perform penstock._expire_tracked(q, g, _now);
        end if;
        select greatest(_token, max(token) + 1) into _token
        from penstock.tracked where group_id = f.group_id and state <> 'leased';
    end if;
    if f.ordered then
        return query
        select * from penstock._take_in_order(q, g, _consumer, _limit, f.lease_seconds, _token, _now, _promoted);
        get diagnostics _taken = row_count;
        _room := _room - _taken;
    else
        -- With several lanes each has two turns: one in which it is left to another who reads it, and one in which it is
        -- waited for, because a worse priority must not be handed out while a better one is ready.
        for l in
            select n.lane_id, n.priority, n.trimmed, turn
            from (
                select *, penstock._turn(f.group_id, _consumer, shard, f.shards) as place
                from penstock.lane
                where queue_id = f.queue_id and priority >= 0
                    and (cardinality(f.lanes) = 1 or penstock._has_unread(f.group_id, lane_id, f.trimmed_position))
            ) as n
            cross join generate_series(1, coalesce(cardinality(f.lanes), 0)) as turn
            order by n.priority, turn, n.place
        loop
            if l.turn = 1 and (due.ready or due.retries or due.lapsed) then
                return query select * from penstock._take_retries(
                    q, g, _consumer, _room, f.lease_seconds, _token, _now, l.priority
                );
                get diagnostics _taken = row_count;
                _room := _room - _taken;
                exit when _room = 0;
            end if;
            if _promoted <> '{}' then
                return query select * from penstock._take_promoted(
                    q, g, _consumer, _room, f.lease_seconds, _token, _now, l.priority - 1, _promoted
                );
                get diagnostics _taken = row_count;
                _room := _room - _taken;
                exit when _room = 0;
            end if;
            if cardinality(f.lanes) > 1 then
                if l.turn = 1 then
                    if not pg_try_advisory_xact_lock(f.group_id, l.lane_id) then
                        _busy := _busy || l.lane_id;
                        continue;
                    end if;
                else
                    continue when not l.lane_id = any (_busy);
                    exit when _room < _limit;
                    perform pg_advisory_xact_lock(f.group_id, l.lane_id);
                    _busy := array_remove(_busy, l.lane_id);
                    _now := penstock.now_us();
                    _token := greatest(_token, (extract(epoch from clock_timestamp()) * 1000000)::bigint);
                    _ends_at := _now + round(f.lease_seconds * 1000000)::bigint;
                end if;
                c := penstock._cursor(f.group_id, l.lane_id, _segment);
            end if;
            if c.number = 0 then
                c.passed := l.trimmed;
                c.above := f.trimmed_position;
            end if;
            if c.token >= _token then
                exit when _room < _limit;
                _token := c.token + 1;
            end if;
            _is_careful := exists (select 1 from penstock.careful where lane_id = l.lane_id);
            _is_fresh := false;
            loop
                if not c.used_up then
                    _above := greatest(c.above, f.trimmed_position);
                    -- Open in the one snapshot, closed in the other.
                    _open := '{}';
                    if pg_snapshot_xmin(c.prev) <> pg_snapshot_xmax(c.prev) then
                        _open := array(
                            select x from pg_snapshot_xip(c.prev) as x
                            where x >= c.at_tx and pg_visible_in_snapshot(x, c.snap) order by x
                        );
                    end if;
                    _from := greatest(c.at_tx, pg_snapshot_xmax(c.prev));
                    _from_seq := case when _from = c.at_tx then c.at_seq else 0 end;
                    _upto := pg_snapshot_xmax(c.snap);
                    _segments := array(
                        select segment from penstock.segment
                        where sealed is null or sealed > pg_snapshot_xmin(c.prev)
                    );
                    _taken := 0;
                    if not due.skips then
                        return query
                        with taken as materialized (
                            select * from (
                                (
                                    select m.seq, m.tx, m.created_at, m.id, m.content_type, m.headers, m.expires_at,
                                        m.deadline_at, m.address, m.key, m.batch_id, m.created_by, m.payload
                                    from unnest(_open) as o (x)
                                    cross join lateral (
                                        select * from penstock.log as m
                                        where m.segment = any (_segments) and m.lane_id = l.lane_id and m.tx = o.x
                                            and (m.tx, m.seq) > (c.at_tx, c.at_seq) and m.seq > _above
                                        order by m.tx, m.seq limit _room
                                    ) as m
                                )
                                union all
                                (
                                    select m.seq, m.tx, m.created_at, m.id, m.content_type, m.headers, m.expires_at,
                                        m.deadline_at, m.address, m.key, m.batch_id, m.created_by, m.payload
                                    from penstock.log as m
                                    where m.segment = any (_segments) and m.lane_id = l.lane_id
                                        and (m.tx, m.seq) > (_from, _from_seq) and m.tx < _upto and m.seq > _above
                                        and pg_visible_in_snapshot(m.tx, c.snap)
                                    order by m.tx, m.seq limit _room
                                )
                            ) as m
                            limit _room
                        ),
                        summed as materialized (
                            select count(*)::integer as n, min(seq) as first, max(seq) as last, sum(seq)::bigint as checksum,
                                coalesce(bool_or(
                                    batch_id is not null or (least(expires_at, deadline_at) <= _ends_at) is true
                                ), true) as is_special
                            from taken
                        ),
                        shaped as materialized (
                            select s.n, s.first, s.last, s.checksum, (select t.tx from taken as t offset s.n - 1) as at_tx,
                                (select t.seq from taken as t offset s.n - 1) as at_seq,
                                case when s.last - s.first + 1 <> s.n
                                    then (select range_agg(int8range(t.seq, t.seq + 1)) from taken as t)
                                end as positions
                            from summed as s
                            where not s.is_special
                        ),
                        claimed as (
                            insert into penstock.claim (
                                entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_seq, used_up, above, passed, at,
                                token, checked_at, first, last, n, segment, consumer, positions
                            )
                            select nextval('penstock.entry'), f.group_id, l.lane_id, c.number + 1, pg_current_xact_id(), c.prev, c.snap,
                                -- The time of now, not that of the beginning: what is seen was committed before.
                                s.at_tx, s.at_seq, s.n < _room, c.above, c.passed + s.n, penstock.now_us(), _token, _now,
                                s.first,
                                s.last, s.n, _segment, _consumer, s.positions
                            from shaped as s
                        ),
                        leased as (
                            insert into penstock.lease as e (
                                group_id, token, lane_id, ends_at, leased_at, first, last, n, checksum, consumer, positions
                            )
                            select f.group_id, _token, l.lane_id, _ends_at, _now, s.first, s.last, s.n, s.checksum,
                                _consumer,
                                coalesce(s.positions, int8multirange(int8range(s.first, s.last + 1)))
                            from shaped as s
                            on conflict (group_id, token, lane_id) do update
                            set first = least(e.first, excluded.first), last = greatest(e.last, excluded.last),
                                n = e.n + excluded.n, checksum = e.checksum + excluded.checksum,
                                positions = e.positions + excluded.positions
                        )
                        select t.seq, t.created_at, t.id::text, t.content_type, t.headers, t.expires_at, t.deadline_at,
                            t.address, t.key,
                            case when t.batch_id is not null
                                then (select b.name from penstock.batch as b where b.batch_id = t.batch_id)
                            end,
                            t.created_by, t.payload, l.priority, 1, _ends_at
                        from taken as t
                        where not (select s.is_special from summed as s);
                        get diagnostics _taken = row_count;
                        if _taken > 0 then
                            c.number := c.number + 1;
                            c.passed := c.passed + _taken;
                            _room := _room - _taken;
                        end if;
                    end if;
                    if _taken = 0 and (_is_careful or due.skips) then
                        select * into q from penstock.queue where queue_id = f.queue_id;
                        select * into g from penstock.reader where group_id = f.group_id;
                        return query select * from penstock._take_carefully(
                            q, g, l.lane_id, l.priority, c, _consumer, _room, f.lease_seconds, _token, _now, _segment
                        );
                        get diagnostics _taken = row_count;
                        _room := _room - _taken;
                        c := penstock._cursor(f.group_id, l.lane_id, _segment, c);
                    end if;
                    exit when _room = 0;
                end if;
                exit when _is_fresh;
                -- The window is used up: open the next. Comparing only the ends of snapshots would not do: a transaction
                -- between them may have ended.
                c.prev := c.snap;
                c.snap := penstock._snapshot();
                exit when c.prev::text = c.snap::text;
                c.at_tx := '0';
                c.at_seq := 0;
                c.above := 0;
                c.used_up := false;
                _is_fresh := true;
            end loop;
            exit when _room = 0;
        end loop;
        if _room > 0 and _busy = '{}' and _promoted <> '{}' then
            return query select * from penstock._take_promoted(
                q, g, _consumer, _room, f.lease_seconds, _token, _now, 2147483647, _promoted
            );
            get diagnostics _taken = row_count;
            _room := _room - _taken;
        end if;
        if _room > 0 and _busy = '{}' and (due.ready or due.retries or due.lapsed) then
            return query select * from penstock._take_retries(
                q, g, _consumer, _room, f.lease_seconds, _token, _now, 2147483647
            );
            get diagnostics _taken = row_count;
            _room := _room - _taken;
        end if;
    end if;
    if _now - f.used_at > 10000000 then
        update penstock.reader set used_at = _now where group_id = (
            select group_id from penstock.reader where group_id = f.group_id for update skip locked
        );
    end if;
    row_.created_at := case when _room < _limit then _token else 0 end;
    return next row_;
end
$$;

-- The cursor of a group in a lane: its newest claim. It is in the current segment, unless the group was idle. A given
-- cursor is used when there is none, so that a cursor that was moved in memory only is not lost.
create or replace function penstock._cursor(
    _group_id integer, _lane_id integer, _segment smallint, _otherwise penstock.claim default null
) returns penstock.claim
language plpgsql stable as $$
declare
    c penstock.claim;
begin
    select * into c from penstock.claim
    where segment = _segment and group_id = _group_id and lane_id = _lane_id
    order by number desc limit 1;
    if not found then
        select * into c from penstock.claim
        where group_id = _group_id and lane_id = _lane_id
        order by number desc limit 1;
    end if;
    if not found then
        c := _otherwise;
        if c is null then
            c.number := 0;
            c.prev := '1:1:';
            c.snap := '1:1:';
            c.at_tx := '0';
            c.at_seq := 0;
            c.used_up := true;
            c.above := 0;
            c.passed := 0;
            c.token := 0;
            c.checked_at := 0;
        end if;
    end if;
    return c;
end
$$;

-- Messages of a lane that a cursor has not passed, in order; of each part at most _limit.
create or replace function penstock._unread(
    _lane_id integer, c penstock.claim, _trimmed bigint, _limit bigint
) returns setof penstock.log
language plpgsql stable rows 100 as $$
begin
    -- The rest of its window, and what came after it.
    if not c.used_up then
        return query select * from penstock._window(_lane_id, c, _trimmed) limit _limit;
    end if;
    return query
    select m.* from unnest(array(select x from pg_snapshot_xip(c.snap) as x order by x)) as o (x)
    cross join lateral (
        select * from penstock.log as m
        where m.lane_id = _lane_id and m.tx = o.x and m.seq > _trimmed
        order by m.tx, m.seq
        limit _limit
    ) as m;
    return query
    select m.* from penstock.log as m
    where m.lane_id = _lane_id and m.tx >= pg_snapshot_xmax(c.snap) and m.seq > _trimmed
    order by m.tx, m.seq
    limit _limit;
end
$$;

-- Whether a message lies behind a cursor.
create or replace function penstock._is_read(c penstock.claim, _tx xid8, _seq bigint, _trimmed bigint) returns boolean
language sql immutable as $$
    select _seq <= _trimmed or pg_visible_in_snapshot(_tx, c.prev)
        or (
            pg_visible_in_snapshot(_tx, c.snap)
            and (c.used_up or (_tx, _seq) <= (c.at_tx, c.at_seq) or _seq <= c.above)
        )
$$;

-- Whether a group has unread messages in a lane. It may say yes to those that must be passed over.
create or replace function penstock._has_unread(_group_id integer, _lane_id integer, _trimmed bigint) returns boolean
language plpgsql stable as $$
declare
    c penstock.claim := penstock._cursor(_group_id, _lane_id, penstock._segment());
    _above bigint := greatest(c.above, _trimmed);
begin
    if exists (
        select 1 from penstock.log as m
        where m.lane_id = _lane_id and m.tx >= pg_snapshot_xmax(c.snap) and m.seq > _trimmed
    ) then
        return true;
    end if;
    if not c.used_up and exists (
        select 1 from penstock.log as m
        where m.lane_id = _lane_id
            and (m.tx, m.seq) > (
                greatest(c.at_tx, pg_snapshot_xmax(c.prev)),
                case when c.at_tx >= pg_snapshot_xmax(c.prev) then c.at_seq else 0 end
            )
            and m.tx < pg_snapshot_xmax(c.snap) and pg_visible_in_snapshot(m.tx, c.snap) and m.seq > _above
    ) then
        return true;
    end if;
    return exists (
        select 1 from pg_snapshot_xip(c.snap) as o (x)
        where exists (select 1 from penstock.log as m where m.lane_id = _lane_id and m.tx = o.x and m.seq > _trimmed)
    ) or not c.used_up and exists (
        select 1 from pg_snapshot_xip(c.prev) as o (x)
        where x >= c.at_tx and pg_visible_in_snapshot(x, c.snap) and exists (
            select 1 from penstock.log as m
            where m.lane_id = _lane_id and m.tx = o.x and (m.tx, m.seq) > (c.at_tx, c.at_seq) and m.seq > _above
        )
    );
end
$$;

-- The place of a shard in the order in which a consumer goes around the shards of each priority: its own first, then on
-- from there. One that is not registered begins anywhere.
create or replace function penstock._turn(_group_id integer, _consumer text, _shard integer, _shards integer)
returns integer
language plpgsql stable as $$
declare
    _birth integer;
    _living integer;
begin
    if _shards = 1 then
        return _shard;
    end if;
    select count(*) filter (where other.consumer_id < self.consumer_id), count(*) into _birth, _living
    from penstock.consumer as self
    join penstock.consumer as other using (group_id)
    where self.group_id = _group_id and self.name = _consumer;
    if _living = 0 then
        _birth := ('x' || substr(md5(_consumer || pg_backend_pid()), 1, 7))::bit(28)::integer % _shards;
        _living := 1;
    end if;
    return case when _shard % _living = _birth % _living then 0 else _shards end
        + ((_shard - _birth) % _shards + _shards) % _shards;
end
$$;

-- When a lease given now ends: a deadline that is still ahead, or the expiry, ends it early.
create or replace function penstock._lease_end(
    _now bigint, _lease_seconds double precision, _expires_at bigint, _deadline_at bigint
) returns bigint
language sql immutable as $$
    select least(
        _now + penstock._us(_lease_seconds),
        case when _expires_at > _now then _expires_at end,
        case when _deadline_at > _now then _deadline_at end
    )
$$;

-- Unread messages one by one: what is over is passed and written down as ended, and leases may end at different times.
create or replace function penstock._take_carefully(
    q penstock.queue, g penstock.reader, _lane_id integer, _priority integer, c penstock.claim, _consumer text,
    _room integer, _lease_seconds double precision, _token bigint, _now bigint, _segment smallint
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    m penstock.log;
    fl penstock.flight;
    _ends_at bigint := _now + penstock._us(_lease_seconds);
    _ends bigint;
    _seqs bigint[] := '{}';
    _count integer := 0;
    _passed integer := 0;
    _is_over boolean;
begin
    c.used_up := true;
    for m in select * from penstock._window(_lane_id, c, q.trimmed_position) loop
        if _count = _room then
            c.used_up := false;
            exit;
        end if;
        _passed := _passed + 1;
        c.at_tx := m.tx;
        c.at_seq := m.seq;
        delete from penstock.skip where group_id = g.group_id and seq = m.seq;
        continue when found;
        fl := penstock._as_flight(m, _priority, _token, _consumer);
        _is_over := m.expires_at <= _now or (q.delivery = 'at_most_once' and m.deadline_at <= _now);
        if _is_over then
            perform penstock._end(
                q, g, fl, case when m.expires_at <= _now then 'expire' else 'deadline' end, 'expired', 'system', null, 0,
                null, g.name is not distinct from q.primary_group, _now
            );
            continue;
        end if;
        _count := _count + 1;
        _ends := penstock._lease_end(_now, _lease_seconds, m.expires_at, m.deadline_at);
        if _ends = _ends_at then
            _seqs := _seqs || m.seq;
        else
            perform penstock._track(g.group_id, fl, 'leased', 1, _ends, _now);
            perform penstock._record(
                q.queue_id, g.group_id, 'receive', 'leased', m.seq, _consumer, null, 1, _token, penstock.now_us()
            );
        end if;
        return next row (
            m.seq, m.created_at, m.id::text, m.content_type, m.headers, m.expires_at, m.deadline_at, m.address, m.key,
            (select b.name from penstock.batch as b where b.batch_id = m.batch_id), m.created_by, m.payload, _priority,
            1, _ends
        )::penstock.delivery_row;
    end loop;
    if _passed > 0 then
        perform penstock._claim(q, g, _lane_id, c, _passed, _seqs, _consumer, _token, _ends_at, _now, _segment);
    end if;
end
$$;

-- The rest of a cursor's window.
create or replace function penstock._window(_lane_id integer, c penstock.claim, _trimmed bigint)
returns setof penstock.log
language sql stable rows 100 as $$
    select * from (
        (
            select m.* from unnest(array(
                select x from pg_snapshot_xip(c.prev) as x
                where x >= c.at_tx and pg_visible_in_snapshot(x, c.snap) order by x
            )) as o (x)
            cross join lateral (
                select * from penstock.log as m
                where m.lane_id = _lane_id and m.tx = o.x and (m.tx, m.seq) > (c.at_tx, c.at_seq)
                    and m.seq > greatest(c.above, _trimmed)
                order by m.tx, m.seq
            ) as m
        )
        union all
        (
            select m.* from penstock.log as m
            where m.lane_id = _lane_id
                and (m.tx, m.seq) > (
                    greatest(c.at_tx, pg_snapshot_xmax(c.prev)),
                    case when c.at_tx >= pg_snapshot_xmax(c.prev) then c.at_seq else 0 end
                )
                and m.tx < pg_snapshot_xmax(c.snap) and pg_visible_in_snapshot(m.tx, c.snap)
                and m.seq > greatest(c.above, _trimmed)
            order by m.tx, m.seq
        )
    ) as m
$$;

-- Move a cursor, with a lease on what was taken on the way.
create or replace function penstock._claim(
    q penstock.queue, g penstock.reader, _lane_id integer, c penstock.claim, _passed bigint, _seqs bigint[],
    _consumer text, _token bigint, _ends_at bigint, _now bigint, _segment smallint
) returns void
language plpgsql as $$
declare
    _first bigint;
    _last bigint;
    _sum bigint;
    _n integer := cardinality(_seqs);
begin
    select min(one), max(one), sum(one)::bigint into _first, _last, _sum from unnest(_seqs) as one;
    insert into penstock.claim (
        entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_seq, used_up, above, passed, at, token, checked_at,
        first, last, n, segment, consumer, positions
    ) values (
        nextval('penstock.entry'), g.group_id, _lane_id, c.number + 1, pg_current_xact_id(), c.prev, c.snap, c.at_tx,
        c.at_seq, c.used_up, c.above, c.passed + _passed, penstock.now_us(), _token, c.checked_at, coalesce(_first, 0),
        coalesce(_last, 0), _n, _segment, _consumer, penstock._gaps(_seqs, _first, _last)
    );
    if _n > 0 then
        insert into penstock.lease as e (
            group_id, token, lane_id, ends_at, leased_at, first, last, n, checksum, consumer, positions
        ) values (
            g.group_id, _token, _lane_id, _ends_at, _now, _first, _last, _n, _sum, _consumer,
            penstock._all(_first, _last, penstock._gaps(_seqs, _first, _last))
        )
        on conflict (group_id, token, lane_id) do update
        set first = least(e.first, excluded.first), last = greatest(e.last, excluded.last), n = e.n + excluded.n,
            checksum = e.checksum + excluded.checksum, positions = e.positions + excluded.positions;
    end if;
end
$$;

-- A message of the log on its first attempt.
create or replace function penstock._as_flight(
    m penstock.log, _priority integer, _token bigint, _consumer text
) returns penstock.flight
language sql immutable as $$
    select row (
        m.seq, m.lane_id, _priority, 1, _token, _consumer, null, m.created_at, m.id, m.content_type, m.headers,
        m.expires_at, m.deadline_at, m.address, m.key, m.batch_id, m.created_by, m.available_at, m.payload
    )::penstock.flight
$$;

-- Retries that are ready, up to a priority. Those that another receive is taking are passed by.
create or replace function penstock._take_retries(
    q penstock.queue, g penstock.reader, _consumer text, _room integer, _lease_seconds double precision, _token bigint,
    _now bigint, _priority integer
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    t penstock.tracked;
begin
    for t in
        select * from penstock.tracked
        where group_id = g.group_id and state = 'ready' and priority <= _priority
        order by priority, seq
        limit _room
        for update skip locked
    loop
        return next penstock._take_retry(q, t, _consumer, _lease_seconds, _token, _now);
    end loop;
end
$$;

create or replace function penstock._take_retry(
    q penstock.queue, t penstock.tracked, _consumer text, _lease_seconds double precision, _token bigint, _now bigint
) returns penstock.delivery_row
language plpgsql as $$
declare
    _ends bigint := penstock._lease_end(_now, _lease_seconds, t.expires_at, t.deadline_at);
begin
    update penstock.tracked
    set state = 'leased', attempt = t.attempt + 1, until_at = _ends, token = _token, consumer = _consumer,
        leased_at = _now
    where group_id = t.group_id and seq = t.seq;
    perform penstock._record(
        q.queue_id, t.group_id, 'receive', 'leased', t.seq, _consumer, null, t.attempt + 1, _token, penstock.now_us()
    );
    return row (
        t.seq, t.created_at, t.id::text, t.content_type, t.headers, t.expires_at, t.deadline_at, t.address, t.key,
        (select b.name from penstock.batch as b where b.batch_id = t.batch_id), t.created_by, t.payload, t.priority,
        t.attempt + 1, _ends
    )::penstock.delivery_row;
end
$$;

-- Messages that this very transaction has promoted, up to a priority. No snapshot shows them yet, so no cursor comes to
-- them now: they are looked after one by one, and the cursor passes over them later.
create or replace function penstock._take_promoted(
    q penstock.queue, g penstock.reader, _consumer text, _room integer, _lease_seconds double precision, _token bigint,
    _now bigint, _priority integer, _promoted bigint[]
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    m penstock.log;
    fl penstock.flight;
    _ends bigint;
begin
    for m in
        select l.* from penstock.log as l join penstock.lane as n using (lane_id)
        where l.seq = any (_promoted) and n.priority <= _priority
            and (l.expires_at is null or l.expires_at > _now)
            and (q.delivery = 'at_least_once' or l.deadline_at is null or l.deadline_at > _now)
            and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.seq = l.seq)
        order by n.priority, l.seq
        limit _room
    loop
        fl := penstock._as_flight(
            m, (select priority from penstock.lane where lane_id = m.lane_id), _token, _consumer
        );
        _ends := penstock._lease_end(_now, _lease_seconds, m.expires_at, m.deadline_at);
        insert into penstock.skip (group_id, seq) values (g.group_id, m.seq);
        perform penstock._track(g.group_id, fl, 'leased', 1, _ends, _now);
        perform penstock._record(
            q.queue_id, g.group_id, 'receive', 'leased', m.seq, _consumer, null, 1, _token, penstock.now_us()
        );
        return next row (
            m.seq, m.created_at, m.id::text, m.content_type, m.headers, m.expires_at, m.deadline_at, m.address, m.key,
            (select b.name from penstock.batch as b where b.batch_id = m.batch_id), m.created_by, m.payload, fl.priority,
            1, _ends
        )::penstock.delivery_row;
    end loop;
end
$$;

-- An ordered queue has one open lease per shard. A retry goes before what follows it, and while it waits its shard waits
-- too. What is handed out behind a failure is released, which an at_most_once message must not be: one at a time.
create or replace function penstock._take_in_order(
    q penstock.queue, g penstock.reader, _consumer text, _limit integer, _lease_seconds double precision, _token bigint,
    _now bigint, _promoted bigint[]
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    _most integer := case when q.delivery = 'at_most_once' then 1 else _limit end;
    _segment smallint := penstock._segment();
    _room integer := _limit;
    _taken integer;
    _blocked integer[];
    turn record;
    waiting penstock.tracked;
    r penstock.delivery_row;
begin
    _blocked := array(select penstock._busy_shards(g.group_id));
    -- The first message in care of each shard: if it is ready it is the shard's turn, if not the shard waits.
    for turn in
        select turns.* from (
            select t.priority, 0 as kind, t.seq as place, n.shard, t.seq, null::integer as lane_id, n.trimmed
            from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = g.group_id and t.state in ('held', 'ready')
            union all
            select n.priority, 1, penstock._turn(g.group_id, _consumer, n.shard, q.shards), n.shard, null, n.lane_id,
                n.trimmed
            from penstock.lane as n
            where n.queue_id = q.queue_id and n.priority >= 0
                and penstock._has_unread(g.group_id, n.lane_id, q.trimmed_position)
        ) as turns
        order by turns.priority, turns.kind, turns.place
    loop
        exit when _room = 0;
        continue when turn.shard = any (_blocked);
        if turn.lane_id is null then
            select t.* into waiting from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = g.group_id and t.state in ('held', 'ready') and n.shard = turn.shard
            order by t.seq limit 1;
            continue when waiting.seq <> turn.seq or waiting.state <> 'ready';
            return next penstock._take_retry(q, waiting, _consumer, _lease_seconds, _token, _now);
            _taken := 1;
        else
            continue when exists (
                select 1 from penstock.tracked as t join penstock.lane as n using (lane_id)
                where t.group_id = g.group_id and t.state in ('held', 'ready') and n.shard = turn.shard
            );
            _taken := 0;
            for r in
                select * from penstock._take_lane(
                    q, g, turn.lane_id, turn.priority, turn.trimmed, _consumer, least(_room, _most), _lease_seconds,
                    _token, _now, _segment
                )
            loop
                return next r;
                _taken := _taken + 1;
            end loop;
        end if;
        _room := _room - _taken;
        if _most = 1 and _taken > 0 then
            _blocked := _blocked || turn.shard;
        end if;
    end loop;
    -- What was just promoted is the last of its shard.
    for turn in
        select l.seq, n.shard, n.priority from penstock.log as l join penstock.lane as n using (lane_id)
        where l.seq = any (_promoted)
        order by n.priority, l.seq
    loop
        exit when _room = 0;
        continue when turn.shard = any (_blocked) or exists (
            select 1 from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = g.group_id and t.state in ('held', 'ready') and n.shard = turn.shard
        );
        return query select * from penstock._take_promoted(
            q, g, _consumer, 1, _lease_seconds, _token, _now, turn.priority, array[turn.seq]
        );
        get diagnostics _taken = row_count;
        _room := _room - _taken;
        if _most = 1 and _taken > 0 then
            _blocked := _blocked || turn.shard;
        end if;
    end loop;
end
$$;

-- Shards of an ordered queue in which something is in flight.
create or replace function penstock._busy_shards(_group_id integer) returns setof integer
language sql stable as $$
    select n.shard from penstock.lease as e join penstock.lane as n using (lane_id) where e.group_id = _group_id
    union
    select n.shard from penstock.tracked as t join penstock.lane as n using (lane_id)
    where t.group_id = _group_id and t.state = 'leased'
$$;

-- Unread messages of a lane, window by window, with care.
create or replace function penstock._take_lane(
    q penstock.queue, g penstock.reader, _lane_id integer, _priority integer, _trimmed bigint, _consumer text,
    _limit integer, _lease_seconds double precision, _token bigint, _now bigint, _segment smallint
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    c penstock.claim;
    _room integer := _limit;
    _taken integer;
    _is_fresh boolean := false;
begin
    perform pg_advisory_xact_lock(g.group_id, _lane_id);
    c := penstock._cursor(g.group_id, _lane_id, _segment);
    if c.number = 0 then
        c.passed := _trimmed;
        c.above := q.trimmed_position;
    end if;
    loop
        if not c.used_up then
            return query select * from penstock._take_carefully(
                q, g, _lane_id, _priority, c, _consumer, _room, _lease_seconds, _token, _now, _segment
            );
            get diagnostics _taken = row_count;
            _room := _room - _taken;
            exit when _room = 0;
            c := penstock._cursor(g.group_id, _lane_id, _segment, c);
        end if;
        exit when _is_fresh;
        c.prev := c.snap;
        c.snap := penstock._snapshot();
        exit when c.prev::text = c.snap::text;
        c.at_tx := '0';
        c.at_seq := 0;
        c.above := 0;
        c.used_up := false;
        _is_fresh := true;
    end loop;
end
$$;
