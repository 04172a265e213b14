-- Dead letters: messages that ended in a group without success. dead -> ready by a redrive, or removed by a purge.

-- Record how many dead letters were added or removed. Sweeps fold these changes into the count of the group.
create or replace function penstock._record_dead_change() returns trigger
language plpgsql as $$
begin
    insert into penstock.dead_change (group_id, n)
    select group_id, case tg_op when 'INSERT' then count(*) else -count(*) end from changed group by group_id;
    return null;
end
$$;

create or replace trigger note_new_letters after insert on penstock.dead_letter
referencing new table as changed for each statement execute function penstock._record_dead_change();

create or replace trigger note_gone_letters after delete on penstock.dead_letter
referencing old table as changed for each statement execute function penstock._record_dead_change();

-- The group of a dead letter query: null for a queue without groups; an error for a group that the queue does not have.
create or replace function penstock._find_dead_letter_group(q penstock.queue, _group text) returns penstock.group
language plpgsql as $$
declare
    g penstock.group;
begin
    select * into g from penstock.group where queue_id = q.queue_id and name = coalesce(_group, penstock._default_group(q));
    if g.group_id is null and q.queue_id is not null and _group <> penstock._default_group(q) then
        g := penstock._get_group(q, _group);
    end if;
    return g;
end
$$;

-- The selected dead letters: given ones, those with an outcome, or all, oldest first.
create or replace function penstock._select_dead_letters(
    q penstock.queue, _group_id integer, _ids uuid[], _outcome text, _limit bigint
) returns setof penstock.dead_letter
language sql volatile as $$
    select d.* from penstock.dead_letter as d
    where d.group_id = _group_id and (_outcome is null or d.outcome = _outcome)
        and (
            _ids is null
            or d.position in (select (penstock._locate_message(q, one)).position from unnest(_ids[1:_limit]) as one)
        )
    order by d.died_at, d.position
    limit _limit
    for update skip locked
$$;

-- Validate the selection of dead letters: a wrong outcome would select none, and a wrong limit all.
create or replace function penstock._check_dead_letter_filter(_outcome text, _limit bigint) returns void
language plpgsql immutable as $$
begin
    perform penstock._check_integer('limit', _limit, 1, 1000000);
    if _outcome not in ('succeeded', 'rejected', 'failed', 'lease_expired', 'expired', 'cancelled') then
        raise exception using errcode = 'PN100', message = format(
            '%s is not an outcome (succeeded, rejected, failed, lease_expired, expired, cancelled)',
            penstock._quote_value(_outcome)
        );
    end if;
end
$$;

-- dead -> ready in that group, with attempts starting again and times moved to now. Returns how many.
create or replace function penstock.redrive(
    queue text, ids uuid[] default null, "group" text default null, outcome text default null,
    "limit" bigint default 1000000
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue;
    g penstock.group;
    d penstock.dead_letter;
    msg penstock.message_row;
    _now bigint := penstock.now_us();
    _id uuid;
    _count bigint := 0;
    times record;
begin
    perform penstock._check_dead_letter_filter(redrive.outcome, redrive."limit");
    select * into q from penstock.queue where name = redrive.queue;
    g := penstock._find_dead_letter_group(q, redrive."group");
    if g.group_id is null then
        return 0;
    end if;
    for d in
        select * from penstock._select_dead_letters(q, g.group_id, redrive.ids, redrive.outcome, redrive."limit")
    loop
        _id := coalesce(d.id, penstock.made_id(d.created_at, d.position));
        -- It comes back to its address, unless another live message has it now.
        if d.address is not null and g.name is not distinct from q.primary_group then
            insert into penstock.address as a (queue_id, address, id, position) values (q.queue_id, d.address, _id, d.position)
            on conflict (queue_id, address) do update
            set id = excluded.id, position = excluded.position, outcome = null, reason = null, ended_at = null
            where a.outcome is not null or a.id = excluded.id;
            continue when not found;
        end if;
        perform penstock._subtract_outcomes(g.group_id, d.outcome, 1);
        perform penstock._record_audit(
            q.queue_id, g.group_id, 'redrive', 'ready', d.position, 'system', format('was %s', d.outcome), d.attempts, null, _now
        );
        -- Its times count from now on, as if it had been sent again; and it is no longer a member of its batch. Those of the
        -- log, while it is there: what died may have been moved before.
        select l.expires_at, l.deadline_at into times from penstock.log as l
        where l.position = d.position and l.lane_id = d.lane_id;
        if found then
            d.expires_at := times.expires_at;
            d.deadline_at := times.deadline_at;
        end if;
        delete from penstock.dead_letter where group_id = g.group_id and position = d.position;
        msg := row (
            d.position, d.lane_id, d.priority, 0, 0, null, null, d.created_at, d.id, d.content_type, d.headers,
            d.expires_at + _now - d.created_at, d.deadline_at + _now - d.created_at, d.address, d.key, null,
            d.created_by, d.available_at, d.payload
        );
        perform penstock._track_message(g.group_id, msg, 'ready', 0, _now, null);
        _count := _count + 1;
    end loop;
    if _count > 0 then
        perform penstock._wake_receivers(q.queue_id);
    end if;
    return _count;
end
$$;

-- Remove dead letters for good. Returns how many.
create or replace function penstock.purge(
    queue text, ids uuid[] default null, "group" text default null, outcome text default null,
    "limit" bigint default 1000000
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    q penstock.queue;
    g penstock.group;
    _count bigint;
begin
    perform penstock._check_dead_letter_filter(purge.outcome, purge."limit");
    select * into q from penstock.queue where name = purge.queue;
    g := penstock._find_dead_letter_group(q, purge."group");
    if g.group_id is null then
        return 0;
    end if;
    with gone as (
        delete from penstock.dead_letter as d
        where d.group_id = g.group_id and d.position in (
            select one.position from penstock._select_dead_letters(q, g.group_id, purge.ids, purge.outcome, purge."limit") as one
        )
        returning 1
    )
    select count(*) into _count from gone;
    return _count;
end
$$;

-- Dead letters of a queue, newest first; the place of the last one seen is given for paging.
create or replace function penstock.list_dead_letters(
    _queue text, _group text, _outcome text, _limit bigint, _before_at bigint default null,
    _before_position bigint default null, _before_group text default null
) returns table (
    group_name text, "position" bigint, outcome text, reason text, attempts integer, died_at bigint, created_at bigint,
    id text, content_type text, headers text, payload bytea
)
language sql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set jit = off as $$
    -- Each group along its index, and then the newest of all.
    select g.name, d.position, d.outcome, d.reason, d.attempts, d.died_at, d.created_at,
        coalesce(d.id, penstock.made_id(d.created_at, d.position))::text, d.content_type, d.headers, d.payload
    from penstock.queue as u
    join penstock.group as g using (queue_id)
    cross join lateral (
        select * from penstock.dead_letter as d
        where d.group_id = g.group_id and (_outcome is null or d.outcome = _outcome)
            and (d.died_at, d.position) <= (
                coalesce(_before_at, 9223372036854775807), coalesce(_before_position, 9223372036854775807)
            )
            and (_before_at is null or (d.died_at, d.position, g.name) < (_before_at, _before_position, _before_group))
        order by d.died_at desc, d.position desc
        limit _limit
    ) as d
    where u.name = _queue and (_group is null or g.name = _group)
    order by d.died_at desc, d.position desc, g.name desc
    limit _limit
$$;
