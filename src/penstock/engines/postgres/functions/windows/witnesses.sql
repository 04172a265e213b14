-- Witnesses of marks. A mark may be kept outside the store while the store is restored or failed over, after which it
-- assigns transaction numbers and positions again. So a mark ends with its witness, the last row before it as
-- tx:number:at, where the number is a position or an entry. A store that replayed the commit of that row assigns no
-- number up to it again: a mark is valid if the store has the row, and is refused otherwise.

-- Add its witness to a mark; a mark that has passed nothing needs none. These functions are PL/pgSQL, so that their
-- plans are cached per session.
create or replace function penstock._add_witness(q penstock.queue, _mark text, _table text) returns text
language plpgsql stable as $$
declare
    c penstock.cursor := penstock._mark_as_cursor(_mark);
begin
    return concat_ws(
        '/', _mark, case when _table = 'messages' then penstock._last_sent(q, c) else penstock._last_audit(q, c) end
    );
end
$$;

-- The last message that a cursor has passed, in the log, removed or trimmed: of the last transaction, or with the last
-- position for a cursor that has passed by position alone.
create or replace function penstock._last_sent(q penstock.queue, c penstock.cursor) returns text
language plpgsql stable set enable_seqscan = off as $$
declare
    _snap pg_snapshot := case when c.used_up then c.snap else c.prev end;
    _lanes integer[] := array(select n.lane_id from penstock.lane as n where n.queue_id = q.queue_id and n.priority >= 0);
    w penstock.witness;
begin
    if not c.used_up and c.at_tx = '0' then
        select one.* into w from (
            (
                select m.tx, m.position, m.created_at from penstock.log as m
                where m.position <= c.above and m.lane_id = any (_lanes) and pg_visible_in_snapshot(m.tx, c.snap)
                order by m.position desc limit 1
            )
            union all
            (
                select r.tx, r.position, r.created_at from penstock.removed as r
                where r.queue_id = q.queue_id and r.position <= c.above order by r.position desc limit 1
            )
            union all
            select t.* from unnest(q.trimmed_rows) as t where t.number <= c.above
        ) as one
        order by one.position desc limit 1;
    else
        select one.* into w from (
            select last.* from unnest(_lanes) as n (lane_id)
            cross join lateral (
                select m.tx, m.position, m.created_at from penstock.log as m
                where m.lane_id = n.lane_id and m.tx < pg_snapshot_xmax(_snap) and pg_visible_in_snapshot(m.tx, _snap)
                order by m.tx desc, m.position desc limit 1
            ) as last
            union all
            (
                select m.tx, m.position, m.created_at from penstock.log as m
                where not c.used_up and m.position = c.at_position and m.tx = c.at_tx limit 1
            )
            union all
            (
                select r.tx, r.position, r.created_at from penstock.removed as r
                where r.queue_id = q.queue_id and pg_visible_in_snapshot(r.tx, _snap)
                order by r.tx desc, r.position desc limit 1
            )
            union all
            select t.* from unnest(q.trimmed_rows) as t where pg_visible_in_snapshot(t.tx, _snap)
        ) as one
        order by one.tx desc, one.position desc limit 1;
    end if;
    return w.tx::text || ':' || w.number || ':' || w.at;
end
$$;

-- The last audit entry that a cursor has passed: of the last transaction, or the entry at which it was cut.
create or replace function penstock._last_audit(q penstock.queue, c penstock.cursor) returns text
language plpgsql stable set enable_seqscan = off as $$
declare
    w penstock.witness;
begin
    select one.* into w from (
        (
            select s.tx, s.entry, s.at from penstock.audit as s
            where s.queue_id = q.queue_id and c.used_up and s.tx < pg_snapshot_xmax(c.snap)
                and pg_visible_in_snapshot(s.tx, c.snap)
            order by s.tx desc, s.entry desc limit 1
        )
        union all
        select last.* from penstock.lane as n
        cross join lateral (
            select t.tx, t.entry, t.at from penstock.cursor as t
            where t.lane_id = n.lane_id and t.n > 0 and c.used_up and t.tx < pg_snapshot_xmax(c.snap)
                and pg_visible_in_snapshot(t.tx, c.snap)
            order by t.tx desc, t.entry desc limit 1
        ) as last
        where n.queue_id = q.queue_id
        union all
        (
            select h.tx, h.entry, h.at from (
                select s.tx, s.entry, s.at from penstock.audit as s
                where s.queue_id = q.queue_id and s.tx >= pg_snapshot_xmin(c.prev) and s.entry = c.above
                union all
                select t.tx, t.entry, t.at from penstock.lane as n join penstock.cursor as t using (lane_id)
                where n.queue_id = q.queue_id and t.n > 0 and t.tx >= pg_snapshot_xmin(c.prev) and t.entry = c.above
            ) as h
            where not c.used_up and c.above > 0
        )
        union all
        select kept.part[1]::xid8, kept.part[2]::bigint, kept.part[3]::bigint
        from (select string_to_array(split_part(q.trail_mark, '/', 7), ':') as part) as kept
        where c.used_up and pg_visible_in_snapshot(kept.part[1]::xid8, c.snap)
    ) as one
    order by one.tx desc, one.entry desc limit 1;
    return w.tx::text || ':' || w.number || ':' || w.at;
end
$$;

-- Whether a queue has the row that a mark names, or had it until it was trimmed or removed.
create or replace function penstock._has_witness(q penstock.queue, _table text, _witness text) returns boolean
language plpgsql stable set enable_seqscan = off as $$
declare
    w penstock.witness := row (
        split_part(_witness, ':', 1)::xid8, split_part(_witness, ':', 2)::bigint, split_part(_witness, ':', 3)::bigint
    );
begin
    if _table = 'messages' then
        return coalesce(w = any (q.trimmed_rows), false)
            or exists (
                select 1 from penstock.log as m join penstock.lane as n using (lane_id)
                where m.position = w.number and m.tx = w.tx and m.created_at = w.at and n.queue_id = q.queue_id
            )
            or exists (
                select 1 from penstock.removed as r
                where r.queue_id = q.queue_id and r.position = w.number and r.tx = w.tx and r.created_at = w.at
            );
    end if;
    return _witness is not distinct from split_part(q.trail_mark, '/', 7)
        or exists (
            select 1 from penstock.audit as s
            where s.queue_id = q.queue_id and s.tx = w.tx and s.entry = w.number and s.at = w.at
        )
        or exists (
            select 1 from penstock.lane as n join penstock.cursor as t using (lane_id)
            where n.queue_id = q.queue_id and t.n > 0 and t.tx = w.tx and t.entry = w.number and t.at = w.at
        );
exception when data_exception then
    raise exception using errcode = 'PN100', message = format(
        '%s is not the witness of a mark of this store', penstock._quote_value(_witness)
    );
end
$$;

-- Refuse a mark of a log that this store does not have. A mark of an earlier version has no witness.
create or replace function penstock._check_mark(q penstock.queue, _table text, _mark text) returns void
language plpgsql stable as $$
declare
    c penstock.cursor := penstock._mark_as_cursor(_mark);
    _witness text := split_part(_mark, '/', 7);
begin
    if pg_snapshot_xmax(c.snap) > pg_snapshot_xmax(pg_current_snapshot())
        and pg_snapshot_xmax(c.snap) < '9223372036854775807' then
        raise exception using errcode = 'PN208', message = format(
            'the %s of queue %s end before the mark %s: the store is older than what was read from it, perhaps a restored '
            'copy', _table, penstock._quote_value(q.name), _mark
        );
    end if;
    if _witness <> '' and not penstock._has_witness(q, _table, _witness) and not penstock._is_past_retention(q, _table, c) then
        raise exception using errcode = 'PN208', message = format(
            'the mark %s is behind a row of the %s of queue %s that this store does not have: it was restored from a copy or '
            'failed over after that row was read, and has gone on otherwise', _mark, _table, penstock._quote_value(q.name)
        );
    end if;
end
$$;

-- Keep the witnesses of messages that are about to be trimmed: the message of the last transaction and the one with the
-- last position, of these and of all trimmed before.
create or replace function penstock._keep_witnesses(q penstock.queue, _upto bigint, _tx xid8, _position bigint) returns void
language sql as $$
    with gone as materialized (
        select last.* from penstock.lane as n
        cross join lateral (
            select m.tx, m.position, m.created_at from penstock.log as m
            where m.lane_id = n.lane_id and m.tx = _tx and m.position <= _upto
            order by m.position desc limit 1
        ) as last
        where n.queue_id = q.queue_id
        union all
        select m.tx, m.position, m.created_at from penstock.log as m where m.position = _position
        union all
        select r.tx, r.position, r.created_at from penstock.removed as r where r.queue_id = q.queue_id and r.position <= _upto
        union all
        select t.* from unnest(q.trimmed_rows) as t
    )
    update penstock.queue set trimmed_rows = array(
        (select row (g.tx, g.position, g.created_at)::penstock.witness from gone as g order by g.tx desc, g.position desc limit 1)
        union
        (select row (g.tx, g.position, g.created_at)::penstock.witness from gone as g order by g.position desc limit 1)
    )
    where queue_id = q.queue_id;
    delete from penstock.removed where queue_id = q.queue_id and position <= _upto
$$;
