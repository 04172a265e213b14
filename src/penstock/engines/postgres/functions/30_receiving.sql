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
    _segment smallint;
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
    _segment := coalesce(pg_sequence_last_value('penstock.segment_number'), 0) % 4 + 1;
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
        false as skips
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
            select n.lane_id, n.priority, n.trimmed, turn, (
                -- As it is now: see above.
                select u.trimmed_position from penstock.queue as u where u.queue_id = f.queue_id
            ) as trimmed_position
            from (
                select *, penstock._turn(f.group_id, _consumer, shard, f.shards) as place
                from penstock.lane
                where queue_id = f.queue_id and priority >= 0
                    -- A lane that was made since is left to the next receive: this one holds the lock of the first only.
                    and case when cardinality(f.lanes) = 1 then lane_id = f.lanes[1]
                        else penstock._has_unread(f.group_id, lane_id, f.trimmed_position) end
            ) as n
            cross join generate_series(1, coalesce(cardinality(f.lanes), 0)) as turn
            order by n.priority, turn, n.place
        loop
            f.trimmed_position := l.trimmed_position;
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
                _segment := coalesce(pg_sequence_last_value('penstock.segment_number'), 0) % 4 + 1;
                c := penstock._cursor(f.group_id, l.lane_id, _segment);
                select u.trimmed_position, n.trimmed into f.trimmed_position, l.trimmed
                from penstock.queue as u join penstock.lane as n using (queue_id) where n.lane_id = l.lane_id;
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
                    -- Looked at after the snapshot was taken: whoever ended in it has left its skips before.
                    due.skips := exists (select 1 from penstock.skip where group_id = f.group_id);
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
