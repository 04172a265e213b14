-- Where many messages stand, for lists: one call for all of them.

-- The state of each message in the group and the reason given last, in the order of the ids, as the last entry of its
-- trail says. Both are null for a message that the queue does not have. Messages that lie close to each other are looked
-- up together: what happened to one of them has mostly happened to its neighbours too.
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
    select group_id into _group_id from penstock.reader where queue_id = q.queue_id and name = _group;
    return query
    with place as materialized (
        select one.number, located.is_found, located.seq
        from unnest(_ids) with ordinality as one (id, number)
        cross join lateral penstock._locate(q, one.id) as located
    ),
    neighbour as (
        select p.seq, p.seq - lag(p.seq) over (order by p.seq) > 256 as is_far
        from place as p where p.is_found and p.seq is not null
    ),
    stretched as (
        select n.seq, count(*) filter (where n.is_far) over (order by n.seq) as stretch from neighbour as n
    ),
    stretch as materialized (
        select min(s.seq) as first, max(s.seq) as last from stretched as s group by s.stretch
    ),
    latest as materialized (
        select e.seq, e.state, e.reason
        from stretch
        cross join lateral penstock._last_entries(q.queue_id, _group_id, stretch.first - 1, stretch.last) as e
    )
    select
        case
            when not p.is_found then null
            when p.seq is null then 'held'
            when l.state is not null then l.state
            when (penstock._message(q, p.seq)).available_at is null then 'ready'
            else 'held'
        end,
        l.reason
    from place as p
    left join latest as l on l.seq = p.seq and p.is_found
    order by p.number;
end
$$;
