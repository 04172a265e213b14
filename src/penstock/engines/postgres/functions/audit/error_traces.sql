-- Stack traces of last errors. They are kept with the retry or the dead letter and removed with it; the audit trail keeps only reasons.

-- Store the traces of messages that wait for a retry or are dead letters in the group; others are ignored.
create or replace function penstock.keep_traces(_queue text, _group text, _positions bigint[], _traces text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    g penstock.group := penstock._get_group(q, _group);
begin
    update penstock.tracked as t set trace = one.trace from unnest(_positions, _traces) as one (position, trace)
    where t.group_id = g.group_id and t.position = one.position and t.state <> 'leased';
    update penstock.dead_letter as d set trace = one.trace from unnest(_positions, _traces) as one (position, trace)
    where d.group_id = g.group_id and d.position = one.position;
end
$$;

-- The trace of the last error of a message in a group; null when there is none.
create or replace function penstock.error_trace(_queue text, _id uuid, _group text) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    q penstock.queue := penstock._get_queue(_queue);
    _group_id integer := (select group_id from penstock.group where queue_id = q.queue_id and name = _group);
    _position bigint := (penstock._get_place(q, _id)).position;
begin
    return coalesce(
        (select d.trace from penstock.dead_letter as d where d.group_id = _group_id and d.position = _position),
        (select t.trace from penstock.tracked as t where t.group_id = _group_id and t.position = _position)
    );
end
$$;
