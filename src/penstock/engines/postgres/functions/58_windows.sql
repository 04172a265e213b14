-- Windows: how the pipeline reads. A mark is a cursor as text: prev/snap/tx/seq/above/used up.

-- The mark behind everything that a snapshot sees.
create or replace function penstock._mark(_snap pg_snapshot) returns text
language sql immutable as $$
    select format('%s/%s/0/0/0/t', _snap, _snap)
$$;

-- The mark behind all messages up to a position that are visible now.
create or replace function penstock._mark_above(_position bigint) returns text
language sql volatile as $$
    select format('1:1:/%s/0/0/%s/f', pg_current_snapshot(), _position)
$$;

-- A cursor as a mark.
create or replace function penstock._as_mark(c penstock.claim) returns text
language sql immutable as $$
    select format(
        '%s/%s/%s/%s/%s/%s', c.prev, c.snap, c.at_tx, c.at_seq, c.above, case when c.used_up then 't' else 'f' end
    )
$$;

-- A mark as a cursor; refused when it is not one.
create or replace function penstock._mark_cursor(_mark text) returns penstock.claim
language plpgsql immutable as $$
declare
    c penstock.claim;
    _parts text[] := string_to_array(_mark, '/');
begin
    c.number := 1;
    c.prev := _parts[1];
    c.snap := _parts[2];
    c.at_tx := _parts[3];
    c.at_seq := _parts[4];
    c.above := _parts[5];
    c.used_up := _parts[6];
    c.passed := 0;
    c.token := 0;
    c.checked_at := 0;
    return c;
exception when others then
    raise exception using errcode = 'PN100', message = format(
        '%s is not a mark of this store', penstock._shown(_mark)
    );
end
$$;

-- How many messages of a queue lie beyond a mark.
create or replace function penstock._count_beyond(q penstock.queue, _mark text) returns bigint
language sql stable as $$
    select coalesce(sum(
        (
            select count(*) from penstock.log as m
            where m.lane_id = n.lane_id and m.tx >= pg_snapshot_xmax(c.snap) and m.seq > q.trimmed_position
        ) + (
            select count(*) from pg_snapshot_xip(c.snap) as o (x)
            join penstock.log as m on m.lane_id = n.lane_id and m.tx = o.x and m.seq > q.trimmed_position
        ) + case when c.used_up then 0 else (
            select count(*) from penstock._window(n.lane_id, c, q.trimmed_position)
        ) end
    ), 0)::bigint
    from penstock._mark_cursor(_mark) as c
    cross join penstock.lane as n
    where n.queue_id = q.queue_id and n.priority >= 0
$$;
