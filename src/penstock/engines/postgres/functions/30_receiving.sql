-- ready -> leased: handing messages out.

drop function if exists penstock.take(text, text, text, integer, double precision, boolean);
drop function if exists penstock.take(text, text, text, integer, double precision, boolean, boolean);

-- Up to _limit messages, best priority first, within a priority due retries before unread ones; the last row is not a
-- message: it has the token and the group. With _durable false the commit does not wait for the disk, where a receive
-- that is lost by a power cut only means a redelivery: to be used when the receive is all that the transaction does.
-- With _needs_group a group that is not there is refused instead of made. With _brief others wait for the end of the
-- transaction instead of overtaking it: to be used when it ends at once.
--
-- Unread messages are read by windows. A cursor stands in the window of what is visible in one snapshot and not in the
-- one before it; sequence values commit out of order, but a transaction that was open in the first snapshot is known by
-- its number. One transaction at a time moves the cursor of a lane; with several shards a receive goes on to the next, and
-- one that stays open is overtaken: see penstock._enter_lane.
create or replace function penstock.take(
    _queue text, _group text, _consumer text, _limit integer, _lease_seconds double precision default null,
    _durable boolean default true, _needs_group boolean default false, _brief boolean default false
) returns setof penstock.delivery_row
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    _room integer := _limit;
    _now bigint;
    _checked_at bigint;
    _token bigint;
    _ends_at bigint;
    _fresh pg_snapshot;
    _key bigint;
    _how text;
    _others int8multirange;
    _own xid8;
    _busy integer[] := '{}';
    _entered integer[] := '{}';
    _turns integer[];
    _lane_id integer;
    _priority integer;
    _is_first boolean;
    _has_retries boolean := false;
    _is_fresh boolean;
    _from xid8;
    _from_seq bigint;
    _upto xid8;
    _above bigint;
    _open xid8[];
    _taken integer;
    _ignored text;
    f record;
    due record;
    one record;
    message record;
    c penstock.claim;
    q penstock.queue;
    g penstock.reader;
    row_ penstock.delivery_row;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform penstock._check_isolation('a receive');
    end if;
    -- A transaction that has published what it took may be overtaken at any moment: it is not brief any more.
    _brief := _brief and coalesce(current_setting('penstock.published', true), '') <> 'on';
    -- The queue, the group and, when there is only one, the lane.
    select u.queue_id, u.trimmed_position, u.delivery, u.ordered, u.paused, u.shards, r.group_id, r.name, r.used_at,
        r.stream_mark, coalesce(_lease_seconds, u.lease_seconds) as lease_seconds, n.lanes, n.lane_id, n.priority,
        s.system_identifier::text as cluster
    into f
    from penstock.queue as u
    cross join penstock.store as s
    left join penstock.reader as r
        on r.queue_id = u.queue_id and r.name = coalesce(_group, u.primary_group, 'default')
    cross join lateral (
        select count(*) as lanes, min(lane_id) as lane_id, min(priority) as priority
        from (select lane_id, priority from penstock.lane where queue_id = u.queue_id and priority >= 0 limit 2) as two
    ) as n
    where u.name = _queue;
    if f.cluster is distinct from current_setting('penstock.cluster', true) then
        perform penstock._check_cluster();
    end if;
    if f.group_id is null or f.stream_mark is not null then
        f.name := penstock._made_group(_queue, _group, _needs_group);
        if f.name is not null then
            return query select * from penstock.take(
                _queue, f.name, _consumer, _limit, _lease_seconds, _durable, _needs_group, _brief
            );
            return;
        end if;
        f.name := coalesce(_group, 'default');
        f.paused := true;
    end if;
    if f.paused then
        row_.created_at := 0;
        row_.content_type := f.name;
        return next row_;
        return;
    end if;
    if not _durable and f.delivery = 'at_least_once' then
        _ignored := set_config('synchronous_commit', 'off', true);
    end if;
    if f.lanes = 1 and not f.ordered then
        -- The commonest case without a call; see penstock._enter_lane.
        _key := penstock._lane_key(f.group_id, f.lane_id);
        if _brief and pg_try_advisory_xact_lock(_key) and penstock._is_not_overtaken(_key) then
            _how := 'cursor';
        else
            select * into _how, _others from penstock._enter_lane(f.group_id, f.lane_id, _brief, true);
        end if;
        if _how = 'cursor' then
            _entered := array[f.lane_id];
        end if;
    end if;
    -- After waiting for others: what they did came before.
    _now := penstock.now_us();
    -- Not the injected clock: a later receive has a greater token even if time stands still.
    _token := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    _ends_at := _now + round(f.lease_seconds * 1000000)::bigint;
    _checked_at := _now;
    -- Before what is looked at now: whatever ended in this snapshot has left its skips to be seen.
    _fresh := penstock._snapshot();

    -- The cursor of the only lane; what is due, what has lapsed. Leases that ended before the last look are gone, but
    -- their rows may still lie in the index, in great numbers when somebody keeps a transaction open: they are not looked
    -- at again. The + 0 keeps the planner from an index by group, which has all of them.
    select k.claim, u.trimmed_position,
        exists (
            select 1 from penstock.held where queue_id = f.queue_id and not waiting and available_at <= _now
        ) as held,
        exists (select 1 from penstock.tracked where group_id = f.group_id) as tracked,
        exists (
            select 1 from penstock.lease
            where ends_at <= _now and ends_at > coalesce(k.checked_at, 0) - 50000 and group_id + 0 = f.group_id
        ) as lapsed,
        exists (select 1 from penstock.skip where group_id = f.group_id) as skips,
        exists (select 1 from penstock.reader where group_id = f.group_id) as is_there
    into due
    from penstock.queue as u
    left join lateral (
        select claim, checked_at from penstock.claim
        where f.lanes = 1 and group_id = f.group_id and lane_id = f.lane_id
        order by number desc limit 1
    ) as k on true
    where u.queue_id = f.queue_id;
    f.trimmed_position := due.trimmed_position;
    if not due.is_there then
        -- The group was removed while this waited for the lane.
        return query select * from penstock.take(
            _queue, _group, _consumer, _limit, _lease_seconds, _durable, _needs_group
        );
        return;
    end if;
    if due.held or due.tracked or due.lapsed or f.ordered then
        select * into q from penstock.queue where queue_id = f.queue_id;
        select * into g from penstock.reader where group_id = f.group_id;
        if due.held then
            perform penstock._promote(q, greatest(_limit, 1000), _now);
        end if;
        _has_retries := penstock._look_after(q, g, _limit, greatest(_limit, 1000), due.lapsed, _now);
        if due.lapsed then
            -- Some may be left, for the next receive.
            select coalesce(min(ends_at), _now) into _checked_at
            from penstock.lease
            where ends_at <= _now and ends_at > coalesce((due.claim).checked_at, 0) - 50000 and group_id + 0 = f.group_id;
        end if;
        select greatest(_token, max(token) + 1) into _token
        from penstock.tracked where group_id = f.group_id and state <> 'leased';
    end if;
    _own := pg_current_xact_id_if_assigned();
    if _own is not null then
        select * into q from penstock.queue where queue_id = f.queue_id;
        select * into g from penstock.reader where group_id = f.group_id;
    end if;
    if f.ordered then
        return query
        select * from penstock._take_in_order(q, g, _consumer, _limit, f.lease_seconds, _token, _now, _own);
        get diagnostics _taken = row_count;
        _room := _room - _taken;
    else
        -- With several lanes each has two turns: one in which it is left to another who reads it, and one in which it is
        -- waited for, because a worse priority must not be handed out while a better one is ready.
        if f.lanes = 1 then
            _turns := array[array[f.lane_id, f.priority, 1]];
        else
            _turns := penstock._turns(f.queue_id, f.group_id, _consumer, f.shards, f.trimmed_position);
        end if;
        for place in 1..coalesce(array_length(_turns, 1), 0) loop
            _lane_id := _turns[place][1];
            _priority := _turns[place][2];
            _is_first := _turns[place][3] = 1;
            if _is_first and (_has_retries or _own is not null) then
                return query select * from penstock._take_waiting(
                    q, g, _consumer, _room, f.lease_seconds, _token, _now, _priority, _own
                );
                get diagnostics _taken = row_count;
                _room := _room - _taken;
                exit when _room = 0;
            end if;
            if f.lanes = 1 then
                c := due.claim;
            else
                if _is_first then
                    _key := penstock._lane_key(f.group_id, _lane_id);
                    if _brief and pg_try_advisory_xact_lock(_key) and penstock._is_not_overtaken(_key) then
                        _how := 'cursor';
                    else
                        select * into _how, _others from penstock._enter_lane(f.group_id, _lane_id, _brief, false);
                    end if;
                    if _how is null then
                        _busy := _busy || _lane_id;
                        continue;
                    end if;
                else
                    continue when not _lane_id = any (_busy);
                    exit when _room < _limit;
                    select * into _how, _others from penstock._enter_lane(f.group_id, _lane_id, _brief, true);
                    exit when _how is null;
                    _busy := array_remove(_busy, _lane_id);
                    _now := penstock.now_us();
                    _token := greatest(_token, (extract(epoch from clock_timestamp()) * 1000000)::bigint);
                    _ends_at := _now + round(f.lease_seconds * 1000000)::bigint;
                end if;
                if _how = 'cursor' then
                    _entered := _entered || _lane_id;
                end if;
                _fresh := penstock._snapshot();
                f.trimmed_position := (
                    select u.trimmed_position from penstock.queue as u join penstock.reader as r using (queue_id)
                    where u.queue_id = f.queue_id and r.group_id = f.group_id
                );
                exit when f.trimmed_position is null;
                c := penstock._cursor(f.group_id, _lane_id);
                due.skips := exists (select 1 from penstock.skip where group_id = f.group_id);
            end if;
            if _how is null then
                _busy := _busy || _lane_id;
                exit;
            elsif _how = 'single' then
                return query select * from penstock._take_single(
                    f.queue_id, f.group_id, _lane_id, _priority, _others, _consumer, _room, f.lease_seconds, _token, _now,
                    _room = _limit
                );
                get diagnostics _taken = row_count;
                _room := _room - _taken;
                exit when _room = 0;
                continue;
            end if;
            if c.number is null then
                c := penstock._cursor(f.group_id, _lane_id);
            end if;
            if c.number = 0 then
                c.passed := (select trimmed from penstock.lane where lane_id = _lane_id);
                c.above := f.trimmed_position;
            end if;
            if c.token >= _token then
                exit when _room < _limit;
                _token := c.token + 1;
            end if;
            _is_fresh := false;
            loop
                if not c.used_up then
                    _above := greatest(c.above, f.trimmed_position);
                    _upto := pg_snapshot_xmax(c.snap);
                    _taken := 0;
                    -- Open in the one snapshot, closed in the other; for one message it is enough to know from where on,
                    -- if that is near.
                    _from := pg_snapshot_xmin(c.prev);
                    if _limit > 1 or penstock._distance(_from, pg_snapshot_xmax(c.prev)) > 100 then
                        _open := array(
                            select x from pg_snapshot_xip(c.prev) as x
                            where x >= c.at_tx and pg_visible_in_snapshot(x, c.snap) order by x
                        );
                        _from := coalesce(_open[1], pg_snapshot_xmax(c.prev));
                    end if;
                    if due.skips then
                        null;
                    elsif _limit = 1 and penstock._distance(_from, pg_snapshot_xmax(c.prev)) <= 100 then
                        -- One more is looked at: if there is none, the window is used up.
                        _from := greatest(c.at_tx, _from);
                        _from_seq := case when _from = c.at_tx then c.at_seq else 0 end;
                        for one in
                            select m.seq, m.tx, m.created_at, m.id, m.content_type, m.headers, m.expires_at,
                                m.deadline_at, m.address, m.key, m.batch_id, m.created_by, m.payload
                            from penstock.log as m
                            where m.lane_id = _lane_id
                                and (m.tx, m.seq) > (_from, _from_seq) and m.tx < _upto and m.seq > _above
                                and pg_visible_in_snapshot(m.tx, c.snap) and not pg_visible_in_snapshot(m.tx, c.prev)
                            order by m.tx, m.seq limit 2
                        loop
                            _taken := _taken + 1;
                            if _taken = 1 then
                                message := one;
                            end if;
                        end loop;
                        c.used_up := _taken < 2;
                        if _taken = 0 then
                            null;
                        elsif message.batch_id is not null
                            or least(message.expires_at, message.deadline_at) <= _ends_at then
                            -- Left to those who look at messages one by one.
                            _taken := 0;
                        else
                            insert into penstock.claim (
                                entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_seq, used_up, above, passed, at,
                                token, checked_at, first, last, n, consumer
                            ) values (
                                nextval('penstock.entry'), f.group_id, _lane_id, c.number + 1, pg_current_xact_id(),
                                c.prev, c.snap, message.tx, message.seq, c.used_up, c.above, c.passed + 1,
                                -- The time of now, not that of the beginning: what is seen was committed before.
                                penstock.now_us(), _token, _checked_at, message.seq, message.seq, 1, _consumer
                            );
                            insert into penstock.lease (
                                group_id, token, lane_id, ends_at, leased_at, first, last, n, checksum, consumer, positions
                            ) values (
                                f.group_id, _token, _lane_id, _ends_at, _now, message.seq, message.seq, 1, message.seq,
                                _consumer, int8multirange(int8range(message.seq, message.seq + 1))
                            );
                            return next row (
                                message.seq, message.created_at, message.id::text, message.content_type,
                                message.headers, message.expires_at, message.deadline_at, message.address, message.key,
                                null, message.created_by, message.payload, _priority, 1, _ends_at
                            )::penstock.delivery_row;
                            _taken := 1;
                            _room := 0;
                        end if;
                    else
                        _from := greatest(c.at_tx, pg_snapshot_xmax(c.prev));
                        _from_seq := case when _from = c.at_tx then c.at_seq else 0 end;
                        return query
                        with taken as materialized (
                            select * from (
                                (
                                    select m.seq, m.tx, m.created_at, m.id, m.content_type, m.headers, m.expires_at,
                                        m.deadline_at, m.address, m.key, m.batch_id, m.created_by, m.payload
                                    from unnest(_open) as o (x)
                                    cross join lateral (
                                        select * from penstock.log as m
                                        where m.lane_id = _lane_id and m.tx = o.x
                                            and (m.tx, m.seq) > (c.at_tx, c.at_seq) and m.seq > _above
                                        order by m.tx, m.seq limit _room
                                    ) as m
                                )
                                union all
                                (
                                    select m.seq, m.tx, m.created_at, m.id, m.content_type, m.headers, m.expires_at,
                                        m.deadline_at, m.address, m.key, m.batch_id, m.created_by, m.payload
                                    from penstock.log as m
                                    where m.lane_id = _lane_id
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
                                token, checked_at, first, last, n, consumer, positions
                            )
                            select nextval('penstock.entry'), f.group_id, _lane_id, c.number + 1, pg_current_xact_id(),
                                c.prev, c.snap, s.at_tx, s.at_seq, s.n < _room, c.above, c.passed + s.n,
                                penstock.now_us(), _token, _checked_at, s.first, s.last, s.n, _consumer, s.positions
                            from shaped as s
                        ),
                        leased as (
                            insert into penstock.lease as e (
                                group_id, token, lane_id, ends_at, leased_at, first, last, n, checksum, consumer, positions
                            )
                            select f.group_id, _token, _lane_id, _ends_at, _now, s.first, s.last, s.n, s.checksum,
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
                            t.created_by, t.payload, _priority, 1, _ends_at
                        from taken as t
                        where not (select s.is_special from summed as s);
                        get diagnostics _taken = row_count;
                        if _taken > 0 then
                            c.number := c.number + 1;
                            c.passed := c.passed + _taken;
                            _room := _room - _taken;
                        end if;
                    end if;
                    if _taken = 0 and (
                        due.skips or exists (select 1 from penstock.careful where lane_id = _lane_id)
                    ) then
                        select * into q from penstock.queue where queue_id = f.queue_id;
                        select * into g from penstock.reader where group_id = f.group_id;
                        return query select * from penstock._take_carefully(
                            q, g, _lane_id, _priority, c, _consumer, _room, f.lease_seconds, _token, _now
                        );
                        get diagnostics _taken = row_count;
                        _room := _room - _taken;
                        c := penstock._cursor(f.group_id, _lane_id, c);
                    end if;
                    exit when _room = 0;
                end if;
                exit when _is_fresh;
                -- The window is used up: open the next. Comparing only the ends of snapshots would not do: a transaction
                -- between them may have ended.
                c.prev := c.snap;
                c.snap := _fresh;
                exit when c.prev::text = c.snap::text;
                c.at_tx := '0';
                c.at_seq := 0;
                c.above := 0;
                c.used_up := false;
                _is_fresh := true;
            end loop;
            exit when _room = 0;
        end loop;
        if _room > 0 and _busy = '{}' and (_has_retries or _own is not null) then
            return query select * from penstock._take_waiting(
                q, g, _consumer, _room, f.lease_seconds, _token, _now, 2147483647, _own
            );
            get diagnostics _taken = row_count;
            _room := _room - _taken;
        end if;
    end if;
    if not _brief then
        perform penstock._publish(f.group_id, entered) from unnest(_entered) as entered;
    end if;
    if _now - f.used_at > 10000000 then
        update penstock.reader set used_at = _now where group_id = (
            select group_id from penstock.reader where group_id = f.group_id for update skip locked
        );
    end if;
    row_.content_type := f.name;
    row_.created_at := case when _room < _limit then _token else 0 end;
    return next row_;
end
$$;

-- The lanes that have unread messages, in the order in which a consumer goes to them: for each turn its lane, priority,
-- whether it is the first or the second.
create or replace function penstock._turns(
    _queue_id integer, _group_id integer, _consumer text, _shards integer, _trimmed_position bigint
) returns integer[]
language sql volatile as $$
    select array_agg(array[lane_id, priority, turn] order by priority, turn, place)
    from (
        select *, penstock._turn(_group_id, _consumer, shard, _shards) as place
        from penstock.lane
        where queue_id = _queue_id and priority >= 0 and penstock._has_unread(_group_id, lane_id, _trimmed_position)
    ) as n
    cross join generate_series(1, 2) as turn
$$;

-- How many transaction numbers lie between two.
create or replace function penstock._distance(_from xid8, _upto xid8) returns bigint
language sql immutable as $$
    select _upto::text::bigint - _from::text::bigint
$$;
