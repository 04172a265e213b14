-- Queue policy: declaring it and checking its fields.

-- Create the queue if it is new, set the given policy fields and return the whole policy.
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
    if not found then
        -- It was deleted meanwhile.
        return penstock.declare(declare.queue, changes);
    end if;
    new := jsonb_populate_record(q, changes);
    if new is not distinct from q then
        return q;
    end if;
    if new.shards <> q.shards and (new.ordered or q.ordered) and penstock._has_live_messages(q) then
        raise exception using errcode = 'PN102', message = format(
            'shards of the ordered queue %s cannot change from %s to %s while it has live messages: '
            'drain or flush it first', penstock._quote_value(q.name), q.shards, new.shards
        );
    end if;
    if new.delivery <> q.delivery then
        update penstock.group set expired_upto = 0 where queue_id = q.queue_id;
    end if;
    select group_id into new.primary_group_id from penstock.group
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
    if new.primary_group is distinct from q.primary_group then
        perform penstock._drop_unused_group(new, q.primary_group);
    end if;
    perform penstock._wake_receivers(q.queue_id);
    return new;
end
$$;

-- The policy fields and how each is validated.
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

-- Validate the value of a policy field; the error names the field, the value and what is allowed.
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
            'unknown policy field %s: the fields are %s', penstock._quote_value(_field),
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
            message = format('%s must be %s, not %s', _field, _wanted, penstock._quote_value(_value::text));
    end if;
end
$$;
