-- Reading messages. Each function sees one snapshot, because it is stable.

-- A message with its lane, from the log, or from the retry or dead letter that keeps it.
create or replace function penstock._find_message(q penstock.queue, _position bigint) returns penstock.message_row
language plpgsql stable as $$
declare
    msg penstock.message_row;
begin
    select made.*
    into msg
    from (select o as m, o.lane_id from penstock.log as o where o.position = _position offset 0) as found
    join penstock.lane as n using (lane_id)
    cross join lateral penstock._log_row(
        found.m, case when n.priority < 0 then -1 - n.priority else n.priority end, null, null
    ) as made
    where n.queue_id = q.queue_id and _position > q.trimmed_position;
    if not found then
        select d.position, d.lane_id, d.priority, 0, 0, null, null, d.created_at, d.id, d.content_type, d.headers, d.expires_at,
            d.deadline_at, d.address, d.key, d.batch_id, d.created_by, d.available_at, d.payload
        into msg from penstock.dead_letter as d where d.queue_id = q.queue_id and d.position = _position limit 1;
    end if;
    if not found then
        select made.* into msg
        from penstock.group as g
        join penstock.tracked as t using (group_id)
        cross join lateral penstock._tracked_row(t) as made
        where g.queue_id = q.queue_id and t.position = _position limit 1;
    end if;
    return msg;
end
$$;

-- The columns of a message for readers.
create or replace function penstock._readable_message(
    msg penstock.message_row, out "position" bigint, out priority integer, out created_at bigint, out id text, out content_type text,
    out headers text, out expires_at bigint, out deadline_at bigint, out address text, out key text, out batch text,
    out created_by text, out available_at bigint, out payload bytea
)
language sql stable as $$
    select msg.position, msg.priority, msg.created_at, coalesce(msg.id, penstock.made_id(msg.created_at, msg.position))::text,
        msg.content_type, msg.headers, msg.expires_at, msg.deadline_at, msg.address, msg.key,
        (select b.name from penstock.batch as b where b.batch_id = msg.batch_id), msg.created_by, msg.available_at,
        msg.payload
$$;

-- The place of a message; an error when it does not exist or is past retention.
create or replace function penstock._get_place(q penstock.queue, _id uuid, out "position" bigint, out held_id bigint)
language plpgsql stable as $$
declare
    place record;
begin
    place := penstock._locate_message(q, _id);
    if not place.is_found then
        raise exception using errcode = 'PN300', detail = 'message', message = format(
            'queue %s has no message %L: it never had, or it is past retention', penstock._quote_value(q.name), _id
        );
    end if;
    position := place.position;
    held_id := place.held_id;
end
$$;

-- One message by its id, in whatever state.
create or replace function penstock.find(queue text, id uuid)
returns table (
    "position" bigint, priority integer, created_at bigint, message_id text, content_type text, headers text, expires_at bigint,
    deadline_at bigint, address text, key text, batch text, created_by text, available_at bigint, payload bytea
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(find.queue);
    place record;
begin
    place := penstock._get_place(q, find.id);
    if place.position is not null then
        return query select * from penstock._readable_message(penstock._find_message(q, place.position));
    else
        return query
        select null::bigint, h.priority, h.created_at, h.id::text, h.content_type, h.headers, h.expires_at, h.deadline_at,
            h.address, h.key, b.name, h.created_by, h.available_at, h.payload
        from penstock.held as h left join penstock.batch as b using (batch_id)
        where h.held_id = place.held_id;
    end if;
end
$$;

-- The position of a message that has reached the log.
create or replace function penstock.position_of(queue text, id uuid) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    place record;
begin
    place := penstock._get_place(penstock._get_queue(queue), id);
    if place.position is null then
        raise exception using errcode = 'PN100', message = format(
            'message %s is held: it has not been handed out, so it has no lease', id
        );
    end if;
    return place.position;
end
$$;

-- The last position of a lane, or a later one: as counted before, or among those since. The offset keeps the planner
-- from walking all positions to find the greatest.
create or replace function penstock._lane_end(n penstock.lane) returns bigint
language sql stable as $$
    select greatest(n.last, max(late.position))
    from (
        (
            select m.position from penstock.log as m
            where m.lane_id = n.lane_id and m.tx >= pg_snapshot_xmax(n.counted)
            offset 0
        )
        union all
        select open.position
        from pg_snapshot_xip(n.counted) as o (x)
        cross join lateral (
            select m.position from penstock.log as m where m.lane_id = n.lane_id and m.tx = o.x offset 0
        ) as open
    ) as late
$$;

-- Positions of the log between two positions. A short queue is read as a whole, so that long ones in front of it cost
-- nothing; a long one along the log, from its end.
create or replace function penstock._browse_positions(
    _queue text, _after bigint, _upto bigint, _limit bigint, _backwards boolean
) returns bigint[]
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
    q penstock.queue;
    _from bigint;
    _last bigint;
begin
    select * into q from penstock.queue where name = _queue;
    _from := greatest(_after, q.trimmed_position);
    if (select sum(n.sent - n.trimmed) < 10000 from penstock.lane as n where n.queue_id = q.queue_id) then
        return array(
            select l.position from penstock.lane as n
            cross join lateral (
                -- + 0 hides the index on position, which leads through the messages of all queues.
                select m.position from penstock.log as m
                where m.lane_id = n.lane_id and m.position + 0 > _from and (_upto is null or m.position + 0 <= _upto)
                offset 0
            ) as l
            where n.queue_id = q.queue_id and n.priority >= 0
            order by case when _backwards then -l.position else l.position end
            limit _limit
        );
    elsif _backwards then
        select least(_upto, max(penstock._lane_end(n))) into _last
        from penstock.lane as n where n.queue_id = q.queue_id and n.priority >= 0;
        return array(
            select l.position from penstock.log as l join penstock.lane as n using (lane_id)
            where l.position > _from and l.position <= _last
                and n.queue_id = q.queue_id and n.priority >= 0
            order by l.position desc limit _limit
        );
    end if;
    return array(
        select l.position from penstock.log as l join penstock.lane as n using (lane_id)
        where l.position > _from and l.position <= coalesce(_upto, 9223372036854775807)
            and n.queue_id = q.queue_id and n.priority >= 0
        order by l.position limit _limit
    );
end
$$;

-- Messages of the log between two positions, in whatever state.
create or replace function penstock.browse(
    _queue text, _after bigint, _upto bigint, _limit bigint, _backwards boolean
) returns table (
    "position" bigint, priority integer, created_at bigint, message_id text, content_type text, headers text, expires_at bigint,
    deadline_at bigint, address text, key text, batch text, created_by text, available_at bigint, payload bytea
)
language sql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
    -- From a lateral call: (f(x)).* would call f once for every column.
    select shaped.*
    from unnest(penstock._browse_positions(_queue, _after, _upto, _limit, _backwards)) with ordinality as one (position, place)
    cross join lateral (select l as m, l.lane_id from penstock.log as l where l.position = one.position limit 1) as found
    join penstock.lane as n on n.lane_id = found.lane_id
    cross join lateral penstock._readable_message(penstock._log_row(found.m, n.priority, null, null)) as shaped
    order by one.place
$$;

-- Positions of the messages that a group would receive next, in that order. Of each lane _reach unread messages are read.
create or replace function penstock._next_positions(
    q penstock.queue, _group_id integer, _limit bigint, _reach bigint, _now bigint
) returns setof bigint
language sql stable as $$
    select candidate.position
    from (
        select t.priority as rank, 0 as kind, 0::bigint as place, n.shard, t.position
        from penstock.tracked as t join penstock.lane as n using (lane_id)
        where t.group_id = _group_id
            and (t.state = 'ready' or (t.state in ('held', 'leased') and t.until_at <= _now))
            and (t.expires_at is null or t.expires_at > _now)
        union all
        select n.priority, 0, 0, n.shard, one.position
        from penstock.lease as e
        join penstock.lane as n using (lane_id)
        cross join lateral unnest(penstock._list_positions(e.positions)) as one (position)
        cross join lateral (select m.expires_at from penstock.log as m where m.position = one.position limit 1) as found
        where e.group_id = _group_id and e.ends_at <= _now and (found.expires_at is null or found.expires_at > _now)
        union all
        (
            select n.priority, 1, unread.place, n.shard, unread.position
            from penstock.lane as n
            cross join lateral (
                select m.position, m.expires_at, m.deadline_at, m.batch_id, row_number() over () as place
                from penstock._unread_messages(
                    n.lane_id, penstock._get_cursor(_group_id, n.lane_id), q.trimmed_position,
                    _reach
                ) as m
            ) as unread
            left join penstock.batch as b on b.batch_id = unread.batch_id
            where n.queue_id = q.queue_id and n.priority >= 0
                and (unread.expires_at is null or unread.expires_at > _now)
                and (q.delivery = 'at_least_once' or unread.deadline_at is null or unread.deadline_at > _now)
                and (b.state is null or b.state not in ('cancelling', 'cancelled'))
                and not exists (select 1 from penstock.skip as s where s.group_id = _group_id and s.position = unread.position)
            order by n.priority, unread.place
            limit _reach
        )
    ) as candidate
    where not q.ordered or not exists (
        -- In an ordered queue a shard is blocked while something is in flight, and behind a message that waits for its
        -- next attempt.
        select 1 from penstock.lease as e join penstock.lane as n using (lane_id)
        where e.group_id = _group_id and e.ends_at > _now and n.shard = candidate.shard
        union all
        select 1 from penstock.tracked as t join penstock.lane as n using (lane_id)
        where t.group_id = _group_id and t.state in ('leased', 'held') and t.until_at > _now
            and n.shard = candidate.shard
            and (
                t.state = 'leased'
                or (candidate.kind = 0 and (candidate.rank, candidate.position) >= (t.priority, t.position))
                or (candidate.kind = 1 and (candidate.rank > t.priority or candidate.position >= t.position))
            )
    )
    order by candidate.rank, candidate.kind,
        case when candidate.kind = 0 or q.shards > 1 then candidate.position else candidate.place end
    limit _limit
$$;

-- The same for a queue and a group by name. Seldom are more than a few passed over, so few are read first.
create or replace function penstock._next_positions(_queue text, _group text, _limit bigint) returns bigint[]
language plpgsql stable set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
declare
    q penstock.queue;
    _group_id integer;
    _now bigint := penstock.now_us();
    _positions bigint[] := '{}';
    _reach bigint;
begin
    select * into q from penstock.queue where name = _queue;
    if not found then
        return _positions;
    end if;
    select group_id into _group_id from penstock.group where queue_id = q.queue_id and name = _group;
    foreach _reach in array array[_limit + 20, _limit + 10000] loop
        _positions := array(
            select one.position
            from penstock._next_positions(q, coalesce(_group_id, -1), _limit, _reach, _now) as one (position)
        );
        exit when cardinality(_positions) >= _limit;
    end loop;
    return _positions;
end
$$;

-- The messages that a group would receive next, without leasing them.
create or replace function penstock.next_messages(_queue text, _group text, _limit bigint)
returns table (
    "position" bigint, priority integer, created_at bigint, message_id text, content_type text, headers text, expires_at bigint,
    deadline_at bigint, address text, key text, batch text, created_by text, available_at bigint, payload bytea
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    select shaped.*
    from penstock.queue as q
    left join penstock.group as g on g.queue_id = q.queue_id and g.name = _group
    cross join lateral unnest(penstock._next_positions(_queue, _group, _limit)) with ordinality as one (position, place)
    left join penstock.tracked as t on t.group_id = g.group_id and t.position = one.position
    cross join lateral penstock._readable_message(
        case when t.position is null then penstock._find_message(q, one.position) else penstock._tracked_row(t) end
    ) as shaped
    where q.name = _queue
    order by one.place;
end
$$;

-- The error code of the audit entry that ended a message in the primary group.
create or replace function penstock._error_code(_queue_id integer, _outcome text, _position bigint) returns text
language sql stable as $$
    select s.code from penstock.audit as s
    join penstock.queue as q on q.queue_id = s.queue_id
    join penstock.group as g on g.queue_id = q.queue_id and g.name = q.primary_group
    where _outcome in ('failed', 'rejected') and s.queue_id = _queue_id and s.last = _position and s.first = _position
        and s.group_id = g.group_id
    order by s.entry desc limit 1
$$;

-- Whether the message of an address is live, so that a send to it is refused.
create or replace function penstock.is_live(queue text, address text) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce((
        select penstock._live_message_at(q, is_live.address, penstock.now_us()) is not null
        from penstock.queue as q where q.name = is_live.queue
    ), false)
$$;

-- For each message in flight in a group, whether its batch was cancelled. A redriven message is no longer a member.
create or replace function penstock.cancelled(_queue text, _group text, _positions bigint[]) returns boolean[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    g penstock.group := penstock._get_group(q, _group);
begin
    return array(
        select exists (
            select 1 from penstock.batch as b
            where b.state in ('cancelling', 'cancelled') and b.batch_id = case
                when t.position is not null then t.batch_id
                else (
                    select l.batch_id from penstock.log as l join penstock.lane as n using (lane_id)
                    where l.position = wanted.position and n.queue_id = q.queue_id
                )
            end
        )
        from unnest(_positions) with ordinality as wanted (position, place)
        left join penstock.tracked as t on t.group_id = g.group_id and t.position = wanted.position
        order by wanted.place
    );
end
$$;

-- How a message ended in the primary group; no row while it is live.
create or replace function penstock.ended(_queue text, _id uuid, out outcome text, out reason text, out code text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    place record;
    last record;
    _group_id integer;
begin
    place := penstock._get_place(q, _id);
    select group_id into _group_id from penstock.group where queue_id = q.queue_id and name = q.primary_group;
    if place.position is null or _group_id is null then
        return;
    end if;
    select * into last
    from penstock._last_entry(q.queue_id, _group_id, (penstock._find_message(q, place.position)).lane_id, place.position);
    if last.state not in ('held', 'ready', 'leased') then
        outcome := last.state;
        reason := last.reason;
        code := penstock._error_code(q.queue_id, outcome, place.position);
    end if;
end
$$;
