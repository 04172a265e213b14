-- Reading without changing. Each function sees one snapshot, because it is stable.

-- What happened to the message at a position of a lane, in order.
create or replace function penstock._entries(_queue_id integer, _lane_id integer, _seq bigint)
returns table (
    entry bigint, at bigint, event text, state text, by text, group_id integer, reason text, attempt integer,
    token bigint
)
language sql stable rows 10 as $$
    -- Sets of positions are found by their last one, not far from the message; those that are wide by themselves.
    select s.entry, s.at, s.event, s.state, s.by, s.group_id, s.reason, s.attempt, s.token
    from penstock.step as s
    where s.queue_id = _queue_id and s.last between _seq and _seq + 16383 and s.first <= _seq
        and s.last - s.first < 16384 and (s.positions is null or s.positions @> _seq)
    union all
    select s.entry, s.at, s.event, s.state, s.by, s.group_id, s.reason, s.attempt, s.token
    from penstock.step as s
    where s.queue_id = _queue_id and s.last >= _seq and s.first <= _seq and s.last - s.first >= 16384
        and (s.positions is null or s.positions @> _seq)
    union all
    select c.entry, c.at, 'receive', 'leased', c.consumer, c.group_id, null, 1, c.token
    from penstock.claim as c
    where c.lane_id = _lane_id and c.last between _seq and _seq + 16383 and c.first <= _seq
        and c.last - c.first < 16384 and c.n > 0 and (c.positions is null or c.positions @> _seq)
    union all
    select c.entry, c.at, 'receive', 'leased', c.consumer, c.group_id, null, 1, c.token
    from penstock.claim as c
    where c.lane_id = _lane_id and c.last >= _seq and c.first <= _seq and c.last - c.first >= 16384 and c.n > 0
        and (c.positions is null or c.positions @> _seq)
    order by entry
$$;

-- The latest step of a message in a group.
create or replace function penstock._last_entry(
    _queue_id integer, _group_id integer, _lane_id integer, _seq bigint,
    out state text, out reason text, out attempt integer, out at bigint
)
language plpgsql stable as $$
begin
    -- Not in SQL: this keeps its plan, and a list calls it for every message.
    select e.state, e.reason, e.attempt, e.at into state, reason, attempt, at
    from penstock._entries(_queue_id, _lane_id, _seq) as e
    where e.group_id is null or e.group_id = _group_id
    order by e.entry desc
    limit 1;
end
$$;

-- A message wherever it is, with its lane. What only a retry or a dead letter keeps is found there.
create or replace function penstock._message(q penstock.queue, _seq bigint) returns penstock.flight
language plpgsql stable as $$
declare
    fl penstock.flight;
begin
    select made.*
    into fl
    from (select o as m, o.lane_id from penstock.log as o where o.seq = _seq offset 0) as found
    join penstock.lane as n using (lane_id)
    cross join lateral penstock._as_flight(
        found.m, case when n.priority < 0 then -1 - n.priority else n.priority end, null, null
    ) as made
    where n.queue_id = q.queue_id and _seq > q.trimmed_position;
    if not found then
        select d.seq, d.lane_id, d.priority, 0, 0, null, null, d.created_at, d.id, d.content_type, d.headers, d.expires_at,
            d.deadline_at, d.address, d.key, d.batch_id, d.created_by, d.available_at, d.payload
        into fl from penstock.dead_letter as d where d.queue_id = q.queue_id and d.seq = _seq limit 1;
    end if;
    if not found then
        select made.* into fl
        from penstock.reader as g
        join penstock.tracked as t using (group_id)
        cross join lateral penstock._tracked_flight(t) as made
        where g.queue_id = q.queue_id and t.seq = _seq limit 1;
    end if;
    return fl;
end
$$;

-- A message as it can be read.
create or replace function penstock._shape(
    fl penstock.flight, out seq bigint, out priority integer, out created_at bigint, out id text, out content_type text,
    out headers text, out expires_at bigint, out deadline_at bigint, out address text, out key text, out batch text,
    out created_by text, out available_at bigint, out payload bytea
)
language sql stable as $$
    select fl.seq, fl.priority, fl.created_at, coalesce(fl.id, penstock.made_id(fl.created_at, fl.seq))::text,
        fl.content_type, fl.headers, fl.expires_at, fl.deadline_at, fl.address, fl.key,
        (select b.name from penstock.batch as b where b.batch_id = fl.batch_id), fl.created_by, fl.available_at,
        fl.payload
$$;

-- Where a message is; refused when it never was or is past retention.
create or replace function penstock._place_of(q penstock.queue, _id uuid, out seq bigint, out held_id bigint)
language plpgsql stable as $$
declare
    place record;
begin
    place := penstock._locate(q, _id);
    if not place.is_found then
        raise exception using errcode = 'PN300', detail = 'message', message = format(
            'queue %s has no message %L: it never had, or it is past retention', penstock._shown(q.name), _id
        );
    end if;
    seq := place.seq;
    held_id := place.held_id;
end
$$;

-- One message by its id, wherever it is.
create or replace function penstock.find(queue text, id uuid)
returns table (
    seq bigint, priority integer, created_at bigint, message_id text, content_type text, headers text, expires_at bigint,
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
    place := penstock._place_of(q, find.id);
    if place.seq is not null then
        return query select * from penstock._shape(penstock._message(q, place.seq));
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
    place := penstock._place_of(penstock._get_queue(queue), id);
    if place.seq is null then
        raise exception using errcode = 'PN100', message = format(
            'message %s is held: it has not been handed out, so it has no lease', id
        );
    end if;
    return place.seq;
end
$$;

-- The last position of a lane, or a later one: as counted before, or among those that came since. With an offset, or the
-- planner would go along all positions to find the greatest.
drop function if exists penstock._lane_end(integer);
create or replace function penstock._lane_end(n penstock.lane) returns bigint
language sql stable as $$
    select greatest(n.last, max(late.seq))
    from (
        (
            select m.seq from penstock.log as m
            where m.lane_id = n.lane_id and m.tx >= pg_snapshot_xmax(n.counted)
            offset 0
        )
        union all
        select open.seq
        from pg_snapshot_xip(n.counted) as o (x)
        cross join lateral (
            select m.seq from penstock.log as m where m.lane_id = n.lane_id and m.tx = o.x offset 0
        ) as open
    ) as late
$$;

-- Positions of the log between two positions. A short queue is read as a whole, so that long ones that lie in front of it
-- cost nothing; a long one along the log, from where it ends.
create or replace function penstock._positions(
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
            select l.seq from penstock.lane as n
            cross join lateral (
                select m.seq from penstock.log as m
                where m.lane_id = n.lane_id and m.seq > _from and (_upto is null or m.seq <= _upto)
                offset 0
            ) as l
            where n.queue_id = q.queue_id and n.priority >= 0
            order by case when _backwards then -l.seq else l.seq end
            limit _limit
        );
    elsif _backwards then
        select least(_upto, max(penstock._lane_end(n))) into _last
        from penstock.lane as n where n.queue_id = q.queue_id and n.priority >= 0;
        return array(
            select l.seq from penstock.log as l join penstock.lane as n using (lane_id)
            where l.seq > _from and l.seq <= _last
                and n.queue_id = q.queue_id and n.priority >= 0
            order by l.seq desc limit _limit
        );
    end if;
    return array(
        select l.seq from penstock.log as l join penstock.lane as n using (lane_id)
        where l.seq > _from and l.seq <= coalesce(_upto, 9223372036854775807)
            and n.queue_id = q.queue_id and n.priority >= 0
        order by l.seq limit _limit
    );
end
$$;

-- Messages of the log between two positions, whatever became of them.
create or replace function penstock.browse(
    _queue text, _after bigint, _upto bigint, _limit bigint, _backwards boolean
) returns table (
    seq bigint, priority integer, created_at bigint, message_id text, content_type text, headers text, expires_at bigint,
    deadline_at bigint, address text, key text, batch text, created_by text, available_at bigint, payload bytea
)
language sql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
    -- From a lateral call: (f(x)).* would call f once for every column.
    select shaped.*
    from unnest(penstock._positions(_queue, _after, _upto, _limit, _backwards)) with ordinality as one (seq, place)
    cross join lateral (select l as m, l.lane_id from penstock.log as l where l.seq = one.seq limit 1) as found
    join penstock.lane as n on n.lane_id = found.lane_id
    cross join lateral penstock._shape(penstock._as_flight(found.m, n.priority, null, null)) as shaped
    order by one.place
$$;

-- The trail of one message over all groups, in order; times are microseconds.
create or replace function penstock.trail(queue text, id uuid)
returns table (
    at bigint, event text, state text, by text, group_name text, reason text, attempt integer
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(trail.queue);
    place record;
    fl penstock.flight;
begin
    place := penstock._place_of(q, trail.id);
    if place.seq is null then
        return query
        select h.created_at, 'send', 'held', h.created_by, null::text, null::text, 0
        from penstock.held as h where h.held_id = place.held_id;
        return;
    end if;
    fl := penstock._message(q, place.seq);
    return query
    select fl.created_at, 'send',
        case when fl.available_at is null then 'ready' else 'held' end, fl.created_by, null::text, null::text, 0;
    return query
    select e.at, e.event, e.state, e.by, g.name, e.reason, e.attempt
    from penstock._entries(q.queue_id, fl.lane_id, fl.seq) as e
    left join penstock.reader as g using (group_id)
    order by e.entry;
end
$$;

-- Positions of what the group would receive next, in that order. Of each lane _reach unread messages are looked at.
drop function if exists penstock._coming(penstock.queue, integer, bigint, bigint, bigint);
create or replace function penstock._next_positions(
    q penstock.queue, _group_id integer, _limit bigint, _reach bigint, _now bigint
) returns setof bigint
language sql stable as $$
    select candidate.seq
    from (
        select t.priority as rank, 0 as kind, 0::bigint as place, n.shard, t.seq
        from penstock.tracked as t join penstock.lane as n using (lane_id)
        where t.group_id = _group_id
            and (t.state = 'ready' or (t.state in ('held', 'leased') and t.until_at <= _now))
            and (t.expires_at is null or t.expires_at > _now)
        union all
        select n.priority, 0, 0, n.shard, one.seq
        from penstock.lease as e
        join penstock.lane as n using (lane_id)
        cross join lateral unnest(penstock._members(e.positions)) as one (seq)
        cross join lateral (select m.expires_at from penstock.log as m where m.seq = one.seq limit 1) as found
        where e.group_id = _group_id and e.ends_at <= _now and (found.expires_at is null or found.expires_at > _now)
        union all
        (
            select n.priority, 1, unread.place, n.shard, unread.seq
            from penstock.lane as n
            cross join lateral (
                select m.seq, m.expires_at, m.deadline_at, m.batch_id, row_number() over () as place
                from penstock._unread(
                    n.lane_id, penstock._cursor(_group_id, n.lane_id), q.trimmed_position,
                    _reach
                ) as m
            ) as unread
            left join penstock.batch as b on b.batch_id = unread.batch_id
            where n.queue_id = q.queue_id and n.priority >= 0
                and (unread.expires_at is null or unread.expires_at > _now)
                and (q.delivery = 'at_least_once' or unread.deadline_at is null or unread.deadline_at > _now)
                and (b.state is null or b.state not in ('cancelling', 'cancelled'))
                and not exists (select 1 from penstock.skip as s where s.group_id = _group_id and s.seq = unread.seq)
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
            and n.shard = candidate.shard and (t.state = 'leased' or candidate.seq >= t.seq)
    )
    order by candidate.rank, candidate.kind,
        case when candidate.kind = 0 or q.shards > 1 then candidate.seq else candidate.place end
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
    _seqs bigint[] := '{}';
    _reach bigint;
begin
    select * into q from penstock.queue where name = _queue;
    if not found then
        return _seqs;
    end if;
    select group_id into _group_id from penstock.reader where queue_id = q.queue_id and name = _group;
    foreach _reach in array array[_limit + 20, _limit + 10000] loop
        _seqs := array(
            select one.seq
            from penstock._next_positions(q, coalesce(_group_id, -1), _limit, _reach, _now) as one (seq)
        );
        exit when cardinality(_seqs) >= _limit;
    end loop;
    return _seqs;
end
$$;

-- What the group would receive next, without receiving it.
create or replace function penstock.next_messages(_queue text, _group text, _limit bigint)
returns table (
    seq bigint, priority integer, created_at bigint, message_id text, content_type text, headers text, expires_at bigint,
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
    left join penstock.reader as g on g.queue_id = q.queue_id and g.name = _group
    cross join lateral unnest(penstock._next_positions(_queue, _group, _limit)) with ordinality as one (seq, place)
    left join penstock.tracked as t on t.group_id = g.group_id and t.seq = one.seq
    cross join lateral penstock._shape(
        case when t.seq is null then penstock._message(q, one.seq) else penstock._tracked_flight(t) end
    ) as shaped
    where q.name = _queue
    order by one.place;
end
$$;

-- How a message ended in the primary group; nothing while it is live.
create or replace function penstock.ended(_queue text, _id uuid, out outcome text, out reason text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    place record;
    last record;
    _group_id integer;
begin
    place := penstock._place_of(q, _id);
    select group_id into _group_id from penstock.reader where queue_id = q.queue_id and name = q.primary_group;
    if place.seq is null or _group_id is null then
        return;
    end if;
    select * into last
    from penstock._last_entry(q.queue_id, _group_id, (penstock._message(q, place.seq)).lane_id, place.seq);
    if last.state not in ('held', 'ready', 'leased') then
        outcome := last.state;
        reason := last.reason;
    end if;
end
$$;
