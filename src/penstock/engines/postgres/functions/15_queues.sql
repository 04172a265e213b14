-- Queues and groups: finding, making and declaring them.

-- A queue is made by its first use.
create or replace function penstock._ensure_queue(_name text) returns penstock.queue
language plpgsql as $$
declare
    q penstock.queue;
begin
    select * into q from penstock.queue where name = _name;
    if not found then
        insert into penstock.queue (name, created_at) values (_name, penstock.now_us()) on conflict (name) do nothing;
        select * into q from penstock.queue where name = _name;
    end if;
    return q;
end
$$;

-- A queue that must be there.
create or replace function penstock._get_queue(_name text) returns penstock.queue
language plpgsql as $$
declare
    q penstock.queue;
begin
    select * into q from penstock.queue where name = _name;
    if not found then
        raise exception using errcode = 'PN300', message = format('there is no queue %s', penstock._shown(_name)),
            detail = 'queue';
    end if;
    return q;
end
$$;

-- A group exists from its first use. What ended while held before it began counts for it too, as for every group.
create or replace function penstock._ensure_group(q penstock.queue, _name text) returns penstock.reader
language plpgsql as $$
declare
    g penstock.reader;
    _snap pg_snapshot;
begin
    select * into g from penstock.reader where queue_id = q.queue_id and name = _name;
    if found then
        return g;
    end if;
    -- Whoever takes messages out does so in every group that there is.
    perform pg_advisory_xact_lock_shared(penstock._readers_key(q.queue_id));
    _snap := penstock._snapshot();
    insert into penstock.reader (queue_id, name, used_at, expired, cancelled, counted)
    select q.queue_id, _name, penstock.now_us(),
        coalesce(sum(s.n) filter (where s.state = 'expired'), 0),
        coalesce(sum(s.n) filter (where s.state = 'cancelled'), 0),
        _snap
    from penstock.step as s
    where s.queue_id = q.queue_id and s.group_id is null and s.state in ('expired', 'cancelled')
        and pg_visible_in_snapshot(s.tx, _snap)
    on conflict (queue_id, name) do nothing;
    select * into g from penstock.reader where queue_id = q.queue_id and name = _name;
    return g;
end
$$;

-- The lock of those who make groups of a queue (shared), and of those who do something to all of them.
create or replace function penstock._readers_key(_queue_id integer) returns bigint
language sql immutable as $$
    select hashtextextended(format('penstock readers %s', _queue_id), 0)
$$;

-- A group that must be there.
create or replace function penstock._get_group(q penstock.queue, _name text) returns penstock.reader
language plpgsql as $$
declare
    g penstock.reader;
begin
    select * into g from penstock.reader where queue_id = q.queue_id and name = _name;
    if not found then
        raise exception using errcode = 'PN300', detail = 'group',
            message = format('queue %s has no group %s', penstock._shown(q.name), penstock._shown(_name));
    end if;
    return g;
end
$$;

-- Who receives when nobody says otherwise.
create or replace function penstock._default_group(q penstock.queue) returns text
language sql immutable as $$
    select coalesce(q.primary_group, 'default')
$$;

create or replace function penstock._check_leasing(q penstock.queue, g penstock.reader) returns void
language plpgsql as $$
begin
    if g.stream_mark is not null then
        raise exception using errcode = 'PN204', message = format(
            'group %s of queue %s is read as a stream: receive with another group',
            penstock._shown(g.name), penstock._shown(q.name)
        );
    end if;
end
$$;

-- Make the group, and the queue; its name, or null when somebody else has made it in a transaction that is still open.
create or replace function penstock._made_group(_queue text, _group text, _needs_group boolean) returns text
language plpgsql set lock_timeout = '100ms' as $$
declare
    q penstock.queue;
    g penstock.reader;
begin
    q := penstock._ensure_queue(penstock._check_name('queue', _queue));
    _group := penstock._check_name('group', coalesce(_group, penstock._default_group(q)));
    g := case when _needs_group then penstock._get_group(q, _group) else penstock._ensure_group(q, _group) end;
    perform penstock._check_leasing(q, g);
    return g.name;
exception when lock_not_available then
    return null;
end
$$;

-- The primary group exists from the first send, so that nothing sent can be trimmed before it has read it.
create or replace function penstock._ensure_primary(q penstock.queue) returns integer
language plpgsql as $$
declare
    g penstock.reader;
begin
    if q.primary_group_id is not null or q.primary_group is null then
        return q.primary_group_id;
    end if;
    g := penstock._ensure_group(q, q.primary_group);
    -- Whoever holds the row writes the same: nobody has to wait for it.
    update penstock.queue set primary_group_id = g.group_id
    where queue_id = (select queue_id from penstock.queue where queue_id = q.queue_id for update skip locked)
        and primary_group is not distinct from q.primary_group;
    return g.group_id;
end
$$;

-- The lane of a priority and a shard.
create or replace function penstock._lane(_queue_id integer, _priority integer, _shard integer) returns integer
language plpgsql as $$
declare
    _lane_id integer;
begin
    select lane_id into _lane_id from penstock.lane
    where queue_id = _queue_id and priority = _priority and shard = _shard;
    if not found then
        insert into penstock.lane (queue_id, priority, shard) values (_queue_id, _priority, _shard)
        on conflict (queue_id, priority, shard) do nothing
        returning lane_id into _lane_id;
        if not found then
            select lane_id into _lane_id from penstock.lane
            where queue_id = _queue_id and priority = _priority and shard = _shard;
        end if;
    end if;
    return _lane_id;
end
$$;

-- Whether anything of the queue is held, unread, leased or waiting for a retry.
create or replace function penstock._is_live(q penstock.queue) returns boolean
language sql stable as $$
    select exists (select 1 from penstock.held where queue_id = q.queue_id)
        or exists (
            select 1 from penstock.reader as g
            where g.queue_id = q.queue_id and g.stream_mark is null and (
                exists (select 1 from penstock.lease as l where l.group_id = g.group_id)
                or exists (select 1 from penstock.tracked as t where t.group_id = g.group_id)
                or exists (
                    select 1 from penstock.lane as l
                    where l.queue_id = q.queue_id and l.priority >= 0
                        and penstock._has_unread(g.group_id, l.lane_id, q.trimmed_position)
                )
            )
        )
$$;

-- Make the queue if it is new, set the given policy fields, and give back the whole policy.
create or replace function penstock.declare(queue text, changes jsonb default '{}') returns penstock.queue
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q penstock.queue := penstock._ensure_queue(penstock._check_name('queue', declare.queue));
    new penstock.queue;
    _field text;
begin
    if jsonb_typeof(changes) <> 'object' then
        raise exception using errcode = 'PN102', message = format(
            'changes must be an object of policy fields such as {"lease_seconds": 60}, not %s', changes
        );
    end if;
    for _field in select jsonb_object_keys(changes) loop
        perform penstock._check_field(_field, changes -> _field);
    end loop;
    if changes = '{}' then
        return q;
    end if;
    select * into q from penstock.queue where queue_id = q.queue_id for update;
    new := jsonb_populate_record(q, changes);
    if new is not distinct from q then
        return q;
    end if;
    if new.shards <> q.shards and (new.ordered or q.ordered) and penstock._is_live(q) then
        raise exception using errcode = 'PN102', message = format(
            'shards of the ordered queue %s cannot change from %s to %s while it has live messages: '
            'drain or flush it first', penstock._shown(q.name), q.shards, new.shards
        );
    end if;
    if new.delivery <> q.delivery then
        update penstock.reader set expired_upto = 0 where queue_id = q.queue_id;
    end if;
    select group_id into new.primary_group_id from penstock.reader
    where queue_id = q.queue_id and name = new.primary_group;
    update penstock.queue as u
    set (
        primary_group_id, lease_seconds, max_retries, backoff_base_seconds, backoff_factor, backoff_jitter_seconds,
        backoff_max_seconds, delay_seconds, ttl_seconds, delivery, shards, ordered, primary_group, history_seconds,
        group_idle_seconds, dead_letter_seconds, max_payload_bytes, paused
    ) = row (
        new.primary_group_id, new.lease_seconds, new.max_retries, new.backoff_base_seconds, new.backoff_factor,
        new.backoff_jitter_seconds, new.backoff_max_seconds, new.delay_seconds, new.ttl_seconds, new.delivery,
        new.shards, new.ordered, new.primary_group, new.history_seconds, new.group_idle_seconds,
        new.dead_letter_seconds, new.max_payload_bytes, new.paused
    )
    where u.queue_id = q.queue_id;
    perform penstock._wake(q.queue_id);
    return new;
end
$$;

-- What each policy field may be. The kind says how it is checked.
create or replace function penstock._policy_fields()
returns table (field text, kind text, lowest double precision, highest double precision)
language sql immutable as $$
    values
        ('lease_seconds', 'positive', 0, 3162240000),
        ('max_retries', 'optional integer', 0, 1000000),
        ('backoff_base_seconds', 'seconds', 0, 3162240000),
        ('backoff_factor', 'number', 1, 100),
        ('backoff_jitter_seconds', 'seconds', 0, 3162240000),
        ('backoff_max_seconds', 'seconds', 0, 3162240000),
        ('delay_seconds', 'seconds', 0, 3162240000),
        ('ttl_seconds', 'optional positive', 0, 3162240000),
        ('delivery', 'delivery', 0, 0),
        ('shards', 'integer', 1, 1024),
        ('ordered', 'flag', 0, 0),
        ('primary_group', 'optional name', 0, 0),
        ('history_seconds', 'seconds', 0, 3162240000),
        ('group_idle_seconds', 'positive', 0, 3162240000),
        ('dead_letter_seconds', 'seconds', 0, 3162240000),
        ('max_payload_bytes', 'integer', 1, 536870912),
        ('paused', 'flag', 0, 0)
$$;

-- A value that a policy field can take, or an error that names the field, the value and what would be right.
create or replace function penstock._check_field(_field text, _value jsonb) returns void
language plpgsql immutable as $$
declare
    rule record;
    _type text := jsonb_typeof(_value);
    _wanted text;
begin
    select * into rule from penstock._policy_fields() as f where f.field = _field;
    if not found then
        raise exception using errcode = 'PN102', message = format(
            'unknown policy field %s: the fields are %s', penstock._shown(_field),
            (select string_agg(f.field, ', ') from penstock._policy_fields() as f)
        );
    end if;
    if _type = 'null' and rule.kind like 'optional %' then
        return;
    end if;
    case replace(rule.kind, 'optional ', '')
        when 'flag' then
            _wanted := case when _type <> 'boolean' then 'true or false' end;
        when 'delivery' then
            _wanted := case when _value not in ('"at_least_once"', '"at_most_once"')
                then '''at_least_once'' or ''at_most_once''' end;
        when 'name' then
            if _type = 'string' then
                perform penstock._check_name(_field, _value #>> '{}');
            else
                _wanted := 'a name';
            end if;
        when 'integer' then
            if _type <> 'number' or (_value::numeric) % 1 <> 0
                or _value::numeric not between rule.lowest and rule.highest then
                _wanted := format('a whole number between %s and %s', rule.lowest, rule.highest);
            end if;
        when 'number' then
            if _type <> 'number' or _value::numeric not between rule.lowest and rule.highest then
                _wanted := format('a number between %s and %s', rule.lowest, rule.highest);
            end if;
        else
            if _type <> 'number' or _value::numeric > rule.highest or _value::numeric < rule.lowest
                or (rule.kind like '%positive' and _value::numeric = 0) then
                _wanted := format('a number of seconds, %s 0 and at most a century',
                    case when rule.kind like '%positive' then 'more than' else 'at least' end);
            end if;
    end case;
    if _wanted is not null then
        raise exception using errcode = 'PN102',
            message = format('%s must be %s, not %s', _field, _wanted, penstock._shown(_value::text));
    end if;
end
$$;
