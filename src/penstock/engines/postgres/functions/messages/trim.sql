-- Trim: removing the oldest messages of a queue by moving the position at which its log begins.

-- Remove the oldest messages of the log: all up to a position, or all but the newest. Returns how many; dead letters
-- stay. Messages of open transactions are not removed.
create or replace function penstock.trim(queue text, upto bigint default null, keep bigint default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue;
    _now bigint;
    _upto bigint;
    _decided bigint;
    _piece bigint;
    _rest bigint[];
    _count bigint := 0;
begin
    if (trim.upto is null) = (trim.keep is null) or trim.keep < 0 then
        raise exception using errcode = 'PN100', message = format(
            'trim takes either upto (a position) or keep (a number of messages, 0 or more), not %s and %s',
            coalesce(trim.upto::text, 'null'), coalesce(trim.keep::text, 'null')
        );
    end if;
    -- Before this transaction has a number.
    perform penstock._record_decided_position();
    select * into q from penstock.queue where name = trim.queue;
    if not found then
        return 0;
    end if;
    _upto := case when trim.keep is null then least(trim.upto, penstock._last_position())
        else penstock._position_before_newest(q, trim.keep) end;
    if _upto is null or _upto <= q.trimmed_position then
        return 0;
    end if;
    q := penstock._lock_queue(q);
    if q.queue_id is null then
        return 0;
    end if;
    _now := penstock.now_us();
    -- Without waiting for other transactions.
    _decided := penstock._decided_position();
    loop
        select max(one.position) into _piece from (
            select m.position from penstock.log as m join penstock.lane as n using (lane_id)
            where n.queue_id = q.queue_id and m.position > q.trimmed_position
                and m.position <= least(_upto, _decided)
            order by m.position
            limit 10000
        ) as one;
        exit when _piece is null;
        perform penstock._end_oldest(q, _piece, _now);
        _count := _count + penstock._trim_to(q, _piece, _now);
        select * into q from penstock.queue where queue_id = q.queue_id;
    end loop;
    -- Something may still appear among these: where the log begins must not be moved past them.
    _rest := array(
        select m.position from penstock.log as m join penstock.lane as n using (lane_id)
        where n.queue_id = q.queue_id and n.priority >= 0 and m.position > q.trimmed_position and m.position <= _upto
    );
    _count := _count + (
        select count(*) from unnest(_rest) as one
        where not exists (select 1 from penstock.dead_letter as d where d.queue_id = q.queue_id and d.position = one)
    );
    perform penstock._delete_trimmed_messages(q, _rest, true, _now);
    return _count;
end
$$;

-- The position before the newest messages; null when there are no others.
create or replace function penstock._position_before_newest(q penstock.queue, _keep bigint) returns bigint
language plpgsql as $$
declare
    _excess bigint := (
        select sum(penstock._count_sent(n) - n.trimmed) from penstock.lane as n
        where n.queue_id = q.queue_id and n.priority >= 0
    ) - _keep;
begin
    if coalesce(_excess, 0) <= 0 then
        return null;
    end if;
    return (
        select m.position from penstock.log as m join penstock.lane as n using (lane_id)
        where n.queue_id = q.queue_id and n.priority >= 0 and m.position > q.trimmed_position
        order by m.position offset _excess - 1 limit 1
    );
end
$$;

-- live -> cancelled for all messages up to a position, in every group; the cursors count them as passed.
create or replace function penstock._end_oldest(q penstock.queue, _upto bigint, _now bigint) returns void
language plpgsql as $$
declare
    n penstock.lane;
    g penstock.group;
    _positions bigint[];
    _unread integer;
begin
    for n in select * from penstock.lane where queue_id = q.queue_id order by lane_id loop
        _positions := array(
            select m.position from penstock.log as m
            where m.lane_id = n.lane_id and m.position > q.trimmed_position and m.position <= _upto order by m.position
        );
        continue when _positions = '{}';
        for g in select * from penstock.group where queue_id = q.queue_id and stream_mark is null order by group_id loop
            _unread := penstock._cancel_live(q, g, n, _positions, _now);
            perform penstock._count_passed(g, n, _unread, _now);
        end loop;
    end loop;
end
$$;

-- Delete messages one by one after ending them where they are live. Dead letters may be kept.
create or replace function penstock._delete_trimmed_messages(
    q penstock.queue, _positions bigint[], _keeps_letters boolean, _now bigint
) returns void
language plpgsql as $$
declare
    n penstock.lane;
begin
    if _positions = '{}' then
        return;
    end if;
    for n in
        select * from penstock.lane as l
        where l.queue_id = q.queue_id and l.lane_id in (
            select m.lane_id from penstock.log as m where m.position = any (_positions)
            union
            select d.lane_id from penstock.dead_letter as d where d.queue_id = q.queue_id and d.position = any (_positions)
            union
            select t.lane_id from penstock.group as g join penstock.tracked as t using (group_id)
            where g.queue_id = q.queue_id and t.position = any (_positions)
        )
        order by l.lane_id
        for update
    loop
        perform penstock._delete_from_lane(q, n, _positions, _now);
    end loop;
    if not _keeps_letters then
        delete from penstock.dead_letter where queue_id = q.queue_id and position = any (_positions);
    end if;
    -- Entries of single messages lose actor and reason, but stay, because they are counted.
    update penstock.audit set by = null, reason = null
    where queue_id = q.queue_id and last = any (_positions) and first = last and event <> 'remove'
        and not penstock._is_retained(q.queue_id, last);
    delete from penstock.identity as i
    where i.queue_id = q.queue_id and i.position = any (_positions) and not penstock._is_retained(q.queue_id, i.position);
    delete from penstock.address as a
    where a.queue_id = q.queue_id and a.position = any (_positions) and a.outcome is not null
        and not penstock._is_retained(q.queue_id, a.position);
end
$$;

-- Delete messages of one lane, and correct the counts of passed and sent messages.
create or replace function penstock._delete_from_lane(
    q penstock.queue, n penstock.lane, _all bigint[], _now bigint
) returns void
language plpgsql as $$
declare
    g penstock.group;
    _positions bigint[];
    _unread integer;
    gone record;
begin
    for g in select * from penstock.group where queue_id = q.queue_id and stream_mark is null order by group_id loop
        -- A lane that was made since the others were locked.
        perform penstock._lock_lane(g.group_id, n.lane_id);
    end loop;
    _positions := array(
        select m.position from penstock.log as m
        where m.lane_id = n.lane_id and m.position = any (_all) and m.position > q.trimmed_position order by m.position
    );
    for g in select * from penstock.group where queue_id = q.queue_id and stream_mark is null order by group_id loop
        _unread := penstock._cancel_live(q, g, n, _positions, _now);
        perform penstock._cancel_tracked(q, g, _all, _now);
        perform penstock._count_passed(g, n, _unread - cardinality(_positions), _now);
    end loop;
    with gone as (
        delete from penstock.log as m where m.lane_id = n.lane_id and m.position = any (_all)
        returning m.position, m.tx, m.created_at
    ),
    noted as (
        insert into penstock.removed (queue_id, position, tx, created_at)
        select q.queue_id, r.position, r.tx, r.created_at from gone as r where r.position > q.trimmed_position
    )
    select
        -- Sent are those in the lane's count and those in the log since; trimmed ones are sent in any case.
        count(*) filter (where position > q.trimmed_position and pg_visible_in_snapshot(tx, n.counted)) as counted,
        count(*) filter (where position <= q.trimmed_position and not pg_visible_in_snapshot(tx, n.counted)) as trimmed,
        min(tx) as first_tx, min(position) as first_position, max(tx) as tx, max(position) as position
    into gone from gone;
    update penstock.lane set sent = sent - gone.counted + gone.trimmed
    where lane_id = n.lane_id and gone.counted <> gone.trimmed;
    if gone.tx is not null then
        update penstock.queue set removed_tx = greatest(removed_tx, gone.tx) where queue_id = q.queue_id;
        perform penstock._record_removal(q.queue_id, gone.first_tx, gone.first_position, gone.tx, gone.position);
    end if;
end
$$;
