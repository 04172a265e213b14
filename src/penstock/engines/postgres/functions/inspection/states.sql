-- The states of many messages in one call, for lists.

-- The state of each message in the group and the last reason, in the order of the ids, from its last audit entry; null
-- for messages that the queue does not have. Neighbouring messages are looked up together, because they mostly share
-- their entries.
create or replace function penstock.states(_queue text, _group text, _ids uuid[])
returns table (state text, reason text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(_queue);
    _group_id integer;
begin
    select group_id into _group_id from penstock.group where queue_id = q.queue_id and name = _group;
    return query
    with place as materialized (
        select one.number, located.is_found, located.position
        from unnest(_ids) with ordinality as one (id, number)
        cross join lateral penstock._locate_message(q, one.id) as located
    ),
    neighbour as (
        select p.position, p.position - lag(p.position) over (order by p.position) > 256 as is_far
        from place as p where p.is_found and p.position is not null
    ),
    stretched as (
        select n.position, count(*) filter (where n.is_far) over (order by n.position) as stretch from neighbour as n
    ),
    stretch as materialized (
        select min(s.position) as first, max(s.position) as last from stretched as s group by s.stretch
    ),
    latest as materialized (
        select e.position, e.state, e.reason
        from stretch
        cross join lateral penstock._last_entries(q.queue_id, _group_id, stretch.first - 1, stretch.last) as e
    )
    select
        case
            when not p.is_found then null
            when p.position is null then 'held'
            when l.state is not null then l.state
            when (penstock._find_message(q, p.position)).available_at is null then 'ready'
            else 'held'
        end,
        l.reason
    from place as p
    left join latest as l on l.position = p.position and p.is_found
    order by p.number;
end
$$;
