-- Finished messages, found through the audit trail and not by reading the log.

-- The last position before a given one at which something may have ended in a group; null at the end. It is found
-- through audit entries, so live messages cost nothing. An entry spans less than 16384 positions, or it is wide and in
-- an index of its own.
create or replace function penstock._ended_before(_queue_id integer, _group_id integer, _before bigint) returns bigint
language sql stable as $$
    select max(least(one.last, _before - 1))
    from (
        (
            select s.last from penstock.audit as s
            where s.queue_id = _queue_id and s.last < _before + 16384 and s.first < _before and s.first > 0
                and (s.group_id is null or s.group_id = _group_id) and s.state not in ('held', 'ready', 'leased')
            order by s.last desc limit 1
        )
        union all
        (
            select s.last from penstock.audit as s
            where s.queue_id = _queue_id and s.last >= _before and s.first < _before and s.last - s.first >= 16384
                and (s.group_id is null or s.group_id = _group_id) and s.state not in ('held', 'ready', 'leased')
            limit 1
        )
    ) as one
$$;

-- The latest audit entry of every message between two positions in a group, last position first.
create or replace function penstock._last_entries(_queue_id integer, _group_id integer, _after bigint, _upto bigint)
returns table ("position" bigint, state text, reason text, attempt integer, at bigint)
language sql stable rows 1000 as $$
    select distinct on (p.position) p.position, e.state, e.reason, e.attempt, e.at
    from (
        select s.entry, s.at, s.state, s.reason, s.attempt, s.first, s.last, s.positions
        from penstock.audit as s
        where s.queue_id = _queue_id and s.last > _after and s.last < _upto + 16384 and s.first <= _upto and s.first > 0
            and s.last - s.first < 16384 and (s.group_id is null or s.group_id = _group_id)
        union all
        select s.entry, s.at, s.state, s.reason, s.attempt, s.first, s.last, s.positions
        from penstock.audit as s
        where s.queue_id = _queue_id and s.last > _after and s.first <= _upto and s.first > 0
            and s.last - s.first >= 16384 and (s.group_id is null or s.group_id = _group_id)
        union all
        select c.entry, c.at, 'leased', null, 1, c.first, c.last, c.positions
        from penstock.lane as n
        cross join lateral (
            -- By position and not by group, or all receives of the group would be read.
            (
                select * from penstock.cursor as near
                where near.lane_id = n.lane_id and near.last > _after and near.last < _upto + 16384
                    and near.first <= _upto and near.last - near.first < 16384 and near.n > 0
                offset 0
            )
            union all
            (
                select * from penstock.cursor as wide
                where wide.lane_id = n.lane_id and wide.last > _after and wide.first <= _upto
                    and wide.last - wide.first >= 16384 and wide.n > 0
                offset 0
            )
        ) as c
        where n.queue_id = _queue_id and c.group_id = _group_id
    ) as e
    cross join lateral unnest(
        coalesce(e.positions, int8multirange(int8range(e.first, e.last, '[]')))
        * int8multirange(int8range(_after, _upto, '(]'))
    ) as reach (part)
    cross join lateral generate_series(lower(reach.part), upper(reach.part) - 1) as p (position)
    order by p.position desc, e.entry desc
$$;

-- Messages that have ended in the group, latest position first, before a position.
create or replace function penstock.ended_messages(
    _queue text, _group text, _outcome text, _limit bigint, _before bigint
) returns table (
    outcome text, reason text, attempts integer, finished_at bigint, "position" bigint, priority integer, created_at bigint,
    message_id text, content_type text, headers text, expires_at bigint, deadline_at bigint, address text, key text,
    batch text, created_by text, available_at bigint, payload bytea
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue;
    g penstock.group;
    _count bigint;
    _left bigint := _limit;
    _upto bigint := coalesce(_before, 9223372036854000000);
    _after bigint;
    _width bigint := least(greatest(_limit * 2, 100), 16000);
begin
    select * into q from penstock.queue where name = _queue;
    select * into g from penstock.group where queue_id = q.queue_id and name = _group;
    if g.group_id is null then
        return;
    end if;
    while _left > 0 loop
        _upto := penstock._ended_before(q.queue_id, g.group_id, _upto);
        exit when _upto is null or _upto <= q.trimmed_position;
        _after := greatest(_upto - _width, q.trimmed_position);
        -- Only messages that are still in the log count towards the limit: removed ones have entries but no row. One by one
        -- along the index, as the limits tell: a planner that knows nothing would join all of the log.
        return query
        select e.state, e.reason, e.attempt, e.at, s.*
        from (
            select e.*, there.lane_id
            from (
                select * from penstock._last_entries(q.queue_id, g.group_id, _after, _upto) as e
                where e.state not in ('held', 'ready', 'leased') and (_outcome is null or e.state = _outcome)
                order by e.position desc
            ) as e
            cross join lateral (select l.lane_id from penstock.log as l where l.position = e.position limit 1) as there
            order by e.position desc
            limit _left
        ) as e
        cross join lateral (select l as m from penstock.log as l where l.position = e.position limit 1) as found
        join penstock.lane as n on n.lane_id = e.lane_id
        cross join lateral penstock._readable_message(penstock._log_row(
            found.m, case when n.priority < 0 then -1 - n.priority else n.priority end, null, null
        )) as s
        order by e.position desc;
        get diagnostics _count = row_count;
        _left := _left - _count;
        _upto := _after + 1;
        _width := least(_width * 4, 16000);
    end loop;
    -- Then those that only their dead letter keeps.
    return query
    select d.outcome, d.reason, d.attempts, d.died_at, s.*
    from penstock.dead_letter as d
    cross join lateral penstock._readable_message(penstock._find_message(q, d.position)) as s
    where d.group_id = g.group_id and d.position <= q.trimmed_position and (_before is null or d.position < _before)
        and (_outcome is null or d.outcome = _outcome)
    order by d.position desc limit _left;
end
$$;
