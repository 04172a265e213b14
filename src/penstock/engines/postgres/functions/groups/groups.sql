-- Groups: looking them up and making them.

-- Get a group, or create it on first use. Messages that ended while held before that count for it, as for every group.
create or replace function penstock._ensure_group(q penstock.queue, _name text) returns penstock.group
language plpgsql as $$
declare
    g penstock.group;
    _snap pg_snapshot;
begin
    select * into g from penstock.group where queue_id = q.queue_id and name = _name;
    if found then
        return g;
    end if;
    -- A removal of messages covers every existing group.
    perform pg_advisory_xact_lock_shared(penstock._groups_key(q.queue_id));
    _snap := penstock._current_snapshot();
    insert into penstock.group (queue_id, name, used_at, expired, cancelled, counted)
    select q.queue_id, _name, penstock.now_us(),
        coalesce(sum(s.n) filter (where s.state = 'expired'), 0),
        coalesce(sum(s.n) filter (where s.state = 'cancelled'), 0),
        _snap
    from penstock.audit as s
    where s.queue_id = q.queue_id and s.group_id is null and s.state in ('expired', 'cancelled')
        and pg_visible_in_snapshot(s.tx, _snap)
    on conflict (queue_id, name) do nothing;
    select * into g from penstock.group where queue_id = q.queue_id and name = _name;
    return g;
end
$$;

-- The lock of a queue's set of groups: shared by those who create groups, exclusive for those who change all of them.
create or replace function penstock._groups_key(_queue_id integer) returns bigint
language sql immutable as $$
    select hashtextextended(format('penstock readers %s', _queue_id), 0)
$$;

-- Get a group; an error when it does not exist.
create or replace function penstock._get_group(q penstock.queue, _name text) returns penstock.group
language plpgsql as $$
declare
    g penstock.group;
begin
    select * into g from penstock.group where queue_id = q.queue_id and name = _name;
    if not found then
        raise exception using errcode = 'PN300', detail = 'group',
            message = format('queue %s has no group %s', penstock._quote_value(q.name), penstock._quote_value(_name));
    end if;
    return g;
end
$$;

-- The group of a receive that names none.
create or replace function penstock._default_group(q penstock.queue) returns text
language sql immutable as $$
    select coalesce(q.primary_group, 'default')
$$;

create or replace function penstock._refuse_stream_group(q penstock.queue, g penstock.group) returns void
language plpgsql as $$
begin
    if g.stream_mark is not null then
        raise exception using errcode = 'PN204', message = format(
            'group %s of queue %s is read as a stream: receive with another group',
            penstock._quote_value(g.name), penstock._quote_value(q.name)
        );
    end if;
end
$$;

-- Create the group and the queue. Returns its name, or null when another open transaction is creating it.
create or replace function penstock._make_group(_queue text, _group text, _needs_group boolean) returns text
language plpgsql set lock_timeout = '100ms' as $$
declare
    q penstock.queue;
    g penstock.group;
begin
    q := penstock._ensure_queue(penstock._check_name('queue', _queue));
    _group := penstock._check_name('group', coalesce(_group, penstock._default_group(q)));
    g := case when _needs_group then penstock._get_group(q, _group) else penstock._ensure_group(q, _group) end;
    perform penstock._refuse_stream_group(q, g);
    return g.name;
exception when lock_not_available then
    return null;
end
$$;

-- Create the primary group with the first send, so that nothing is trimmed before it was read.
create or replace function penstock._ensure_primary_group(q penstock.queue) returns integer
language plpgsql as $$
declare
    g penstock.group;
begin
    if q.primary_group_id is not null or q.primary_group is null then
        return q.primary_group_id;
    end if;
    g := penstock._ensure_group(q, q.primary_group);
    -- A concurrent holder of the row writes the same value, so it is not waited for.
    update penstock.queue set primary_group_id = g.group_id
    where queue_id = (select queue_id from penstock.queue where queue_id = q.queue_id for update skip locked)
        and primary_group is not distinct from q.primary_group;
    return g.group_id;
end
$$;
