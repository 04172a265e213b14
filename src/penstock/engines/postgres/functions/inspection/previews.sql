-- Previews: how many messages a seek or another retention would affect, without doing it.

-- The position of a seek target: a position, a time (microseconds), "start" or "end".
create or replace function penstock._seek_position(q penstock.queue, _target text, _is_time boolean) returns bigint
language plpgsql stable as $$
declare
    _last bigint := penstock._last_position();
begin
    if _target is null or _target not in ('start', 'end')
        and (_target !~ '^-?[0-9]{1,18}$' or _target ~ '^-' and not _is_time) then
        raise exception using errcode = 'PN100', message = format(
            'seek goes to a position, a time (with is_time, in microseconds since 1970), ''start'' or ''end'', not %s',
            coalesce(penstock._quote_value(_target), 'null')
        );
    end if;
    if _target = 'start' then
        return q.trimmed_position;
    elsif _target = 'end' then
        return _last;
    elsif _is_time then
        return greatest(q.trimmed_position, penstock._position_at(_target::bigint));
    elsif _target::bigint > _last then
        raise exception using errcode = 'PN100',
            message = format('position %s is beyond the end of the log (%s)', _target, _last);
    end if;
    return greatest(q.trimmed_position, _target::bigint);
end
$$;

-- The effect of a seek: its position, how many unread messages it would pass, and how many would be ready again. For
-- start and end from counts alone; elsewhere messages beyond the position are counted.
create or replace function penstock.preview_seek(
    queue text, "group" text, target text, is_time boolean default false,
    out "position" bigint, out passed_by bigint, out read_again bigint
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(preview_seek.queue);
    g penstock.group;
    n penstock.lane;
    lane record;
begin
    select * into g from penstock.group as r where r.queue_id = q.queue_id and r.name = preview_seek."group";
    "position" := penstock._seek_position(q, target, is_time);
    passed_by := 0;
    read_again := 0;
    for n in select * from penstock.lane as l where l.queue_id = q.queue_id and l.priority >= 0 loop
        select * into lane from penstock._count_unread_beyond(q, g, n, target, "position");
        passed_by := passed_by + lane.unread - lane.unread_beyond;
        read_again := read_again + lane.read_beyond;
    end loop;
    select passed_by - count(*) into passed_by
    from penstock.skip as s where s.group_id = g.group_id and s.position <= preview_seek."position" and passed_by > 0;
    select read_again + count(*) into read_again
    from penstock.skip as s where s.group_id = g.group_id and s.position > preview_seek."position";
    select read_again - count(*) into read_again
    from penstock.tracked as t where t.group_id = g.group_id and t.position > preview_seek."position" and read_again > 0;
    select read_again - coalesce(sum(
        case when e.first > preview_seek."position" then e.n
            else cardinality(penstock._list_positions(
                e.positions * int8multirange(int8range(preview_seek."position" + 1, null))
            )) end
    ), 0) into read_again
    from penstock.lease as e where e.group_id = g.group_id and e.last > preview_seek."position" and read_again > 0;
    passed_by := greatest(0, passed_by);
    read_again := greatest(0, read_again);
end
$$;

-- How many messages of a lane a group has not read, and how many beyond a position it has and has not read.
create or replace function penstock._count_unread_beyond(
    q penstock.queue, g penstock.group, n penstock.lane, _target text, _position bigint,
    out unread bigint, out unread_beyond bigint, out read_beyond bigint
)
language plpgsql stable as $$
declare
    c penstock.cursor := case when g.stream_mark is null then penstock._get_cursor(coalesce(g.group_id, -1), n.lane_id)
        else penstock._mark_as_cursor(g.stream_mark) end;
    _sent bigint := penstock._count_sent(n);
begin
    if g.stream_mark is null then
        unread := _sent - case when c.number = 0 then n.trimmed else c.passed end;
    else
        select count(*) into unread from penstock.log as m
        where m.lane_id = n.lane_id and m.position > q.trimmed_position
            and not penstock._is_behind_cursor(c, m.tx, m.position, q.trimmed_position);
    end if;
    if _target = 'end' then
        unread_beyond := 0;
        read_beyond := 0;
    elsif _target = 'start' then
        unread_beyond := unread;
        read_beyond := _sent - n.trimmed - unread;
    elsif g.stream_mark is null and _position >= greatest(c.at_position, c.last, c.above) then
        -- Nothing was read beyond it.
        read_beyond := 0;
        select count(*) into unread_beyond from penstock.log as m where m.lane_id = n.lane_id and m.position > _position;
    else
        select count(*), count(*) filter (where penstock._is_behind_cursor(c, m.tx, m.position, q.trimmed_position))
        into unread_beyond, read_beyond
        from penstock.log as m where m.lane_id = n.lane_id and m.position > _position;
        unread_beyond := unread_beyond - read_beyond;
    end if;
end
$$;

-- The effect of shorter retentions: finished messages that would go earlier, and dead letters that would go with
-- the next sweep.
create or replace function penstock.preview_retention(
    queue text, changes jsonb, out messages bigint, out dead_letters bigint
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    q penstock.queue := penstock._get_queue(preview_retention.queue);
    new penstock.queue := jsonb_populate_record(q, changes);
    _now bigint := penstock.now_us();
begin
    messages := 0;
    dead_letters := 0;
    if new.history_seconds < q.history_seconds or new.group_idle_seconds < q.group_idle_seconds then
        messages := penstock._count_finished(new, _now);
    end if;
    if new.dead_letter_seconds < q.dead_letter_seconds then
        select coalesce(sum(old.n), 0) into dead_letters
        from penstock.group as g
        cross join lateral (
            select count(*) as n from penstock.dead_letter as d
            where d.group_id = g.group_id and d.died_at <= _now - penstock._microseconds(new.dead_letter_seconds)
        ) as old
        where g.queue_id = q.queue_id;
    end if;
end
$$;

-- How many readable messages every active group has finished, without those that a dead letter keeps. From counts, so
-- of several groups it is the one that has finished least. Without a primary group a message is finished when it
-- expires.
create or replace function penstock._count_finished(q penstock.queue, _now bigint) returns bigint
language plpgsql stable as $$
declare
    _readable bigint;
    _every bigint;
    _held bigint;
    _finished bigint;
begin
    select coalesce(sum(penstock._count_sent(n) - n.trimmed) filter (where n.priority >= 0), 0),
        coalesce(sum(penstock._count_sent(n) - n.trimmed), 0)
    into _readable, _every
    from penstock.lane as n where n.queue_id = q.queue_id;
    select count(*) into _held from penstock.held as h where h.queue_id = q.queue_id;
    select min(_every - (s.available + s.redo + s.in_progress + s.held - _held) - kept.n) into _finished
    from penstock.stats(q.name) as s
    join penstock.group as g on g.queue_id = q.queue_id and g.name = s.group_name
    cross join lateral (
        select count(*) as n from penstock.dead_letter as d
        where d.group_id = g.group_id and d.position > q.trimmed_position
    ) as kept
    where g.used_at > _now - penstock._microseconds(q.group_idle_seconds) or g.name is not distinct from q.primary_group;
    if q.primary_group is null or _finished is null then
        _finished := least(_finished, _readable - penstock.unread(q.name));
    end if;
    return greatest(0, _finished);
end
$$;
