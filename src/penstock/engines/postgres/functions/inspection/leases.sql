-- Open leases, and why a message is not being delivered.

-- Messages in flight in a group, in the order of the log: given ones, those of one consumer, or those after a position.
create or replace function penstock.leases(
    _queue text, _group text, _ids uuid[], _consumer text, _after bigint, _limit bigint
) returns table (
    "position" bigint, created_at bigint, id text, token bigint, consumer text, attempt integer, leased_at bigint,
    ends_at bigint
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue;
    _group_id integer;
    _now bigint := penstock.now_us();
    _wanted bigint[];
begin
    select * into q from penstock.queue where name = _queue;
    select group_id into _group_id from penstock.group where queue_id = q.queue_id and name = _group;
    if _group_id is null then
        return;
    end if;
    if _ids is not null then
        _wanted := array(select (penstock._locate_message(q, one)).position from unnest(_ids) as one);
    end if;
    return query
    select flying.* from (
        select m.position, m.created_at, coalesce(m.id, penstock.made_id(m.created_at, m.position))::text, e.token, e.consumer, 1,
            e.leased_at, e.ends_at
        from penstock.lease as e
        -- In the select list, so that no more positions are generated than requested.
        cross join lateral (
            select generate_series(greatest(lower(r), _after + 1), upper(r) - 1) as position
            from unnest(e.positions) as r where upper(r) - 1 > _after
            limit case when _wanted is null then _limit end
        ) as one
        cross join lateral (
            select l.position, l.created_at, l.id from penstock.log as l where l.position = one.position limit 1
        ) as m
        where e.group_id = _group_id and e.ends_at > _now and e.last > _after and one.position > _after
            and (_consumer is null or e.consumer = _consumer) and (_wanted is null or one.position = any (_wanted))
        union all
        select t.position, t.created_at, coalesce(t.id, penstock.made_id(t.created_at, t.position))::text, t.token, t.consumer,
            t.attempt, t.leased_at, t.until_at
        from penstock.tracked as t
        where t.group_id = _group_id and t.state = 'leased' and t.until_at > _now and t.position > _after
            and (_consumer is null or t.consumer = _consumer) and (_wanted is null or t.position = any (_wanted))
    ) as flying
    order by case when _wanted is null then flying.position else array_position(_wanted, flying.position) end
    limit _limit;
end
$$;

-- The facts about a message in a group that explain why it does not run; the keys are the fields of
-- penstock.domain.explain.Situation.
create or replace function penstock.situation(_queue text, _id uuid, _group text) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    g penstock.group;
    place record;
    last record;
    m penstock.log;
    msg penstock.message_row;
    t penstock.tracked;
    e penstock.lease;
    _now bigint := penstock.now_us();
begin
    place := penstock._get_place(q, _id);
    if place.position is null then
        return (
            select jsonb_build_object(
                'now', _now, 'state', 'held', 'until_at', h.available_at, 'batch', case when h.waiting then b.name end
            )
            from penstock.held as h left join penstock.batch as b using (batch_id) where h.held_id = place.held_id
        );
    end if;
    select * into g from penstock.group where queue_id = q.queue_id and name = _group;
    if g.group_id is null or g.stream_mark is not null then
        return jsonb_build_object('now', _now, 'has_group', g.group_id is not null, 'is_stream', g.group_id is not null);
    end if;
    msg := penstock._find_message(q, place.position);
    select * into last from penstock._last_entry(q.queue_id, g.group_id, msg.lane_id, place.position);
    if last.state not in ('held', 'ready', 'leased') then
        return jsonb_build_object(
            'now', _now, 'state', last.state, 'reason', last.reason, 'is_dead_letter', exists (
                select 1 from penstock.dead_letter where group_id = g.group_id and position = place.position
            )
        );
    end if;
    select * into m from penstock.log where position = place.position;
    select * into t from penstock.tracked where group_id = g.group_id and position = place.position;
    select * into e from penstock.lease where group_id = g.group_id and positions @> place.position limit 1;
    return jsonb_build_object(
        'now', _now,
        'position', place.position,
        'state', coalesce(t.state, case when e.token is null then 'ready' else 'leased' end),
        'reason', t.reason,
        'attempt', coalesce(t.attempt, case when e.token is not null then 1 end),
        'until_at', coalesce(t.until_at, e.ends_at, 0),
        'consumer', coalesce(t.consumer, e.consumer),
        'is_passed', t.position is null and e.token is null and penstock._is_behind_cursor(
            penstock._get_cursor(g.group_id, msg.lane_id), m.tx, m.position, q.trimmed_position
        ),
        'is_blocked', q.ordered and exists (select penstock._busy_shards(g.group_id)),
        'is_paused', q.paused,
        'lag', penstock._count_unread(q, g.group_id),
        'consumers', (select count(*) from penstock.consumer where group_id = g.group_id)
    );
end
$$;
