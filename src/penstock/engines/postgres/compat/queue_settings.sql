-- queue_configuration of the stored-procedure convention: a view of the queue's policy, and of the few settings that
-- have no policy field. A change in either place is visible in the other.

-- Every setting: its policy field (null for those kept in compat_setting), its unit relative to the field's, the value
-- of a new queue, and the lowest sensible value.
create or replace view penstock.compat_setting_kind as
select *
from (values
    ('item_delay', 'delay_seconds', 1, 'seconds', 'number', '0', 0,
     'A message becomes available this long after it was sent, unless the call names a delay.'),
    ('item_ttl', 'ttl_seconds', 60, 'minutes', 'number', '4320', 0,
     'A message that is not processed by then becomes a dead letter. 0: never.'),
    ('lease_duration', 'lease_seconds', 1, 'seconds', 'number', '30', 0.001,
     'How long a client may work on a message, unless the call names a lease.'),
    ('dead_letter_retention', 'dead_letter_seconds', 86400, 'days', 'number', '91', 0,
     'Dead letters are kept this long.'),
    ('history_retention', 'history_seconds', 86400, 'days', 'number', '181', 0,
     'Messages that are done are kept this long.'),
    ('audit_retention', null, 86400, 'days', 'number', '31', 0,
     'The audit goes back this far.'),
    ('max_retries', 'max_retries', 1, 'count', 'number', '7', -1,
     'How often a message is tried again before it becomes a dead letter. -1: without limit.'),
    ('backoff_base', 'backoff_base_seconds', 1, 'seconds', 'number', '10', 0,
     'A retry waits backoff_base * backoff_factor ^ retries + jitter.'),
    ('backoff_factor', 'backoff_factor', 1, 'number', 'number', '2', 1,
     'A retry waits backoff_base * backoff_factor ^ retries + jitter.'),
    ('backoff_jitter_min', null, 1, 'number', 'number', '11', 0,
     'The least jitter, in seconds.'),
    ('backoff_jitter_max', 'backoff_jitter_seconds', 1, 'number', 'number', '99', 0,
     'The most jitter, in seconds.'),
    ('cron_schedule_retention_queue', null, null, 'cron', 'string', '*/7 * * * * *', null,
     'When pg_cron ends leases and messages whose time is over.'),
    ('cron_schedule_retention_dead_letter', null, null, 'cron', 'string', '0 3 * * *', null,
     'When pg_cron removes dead letters past retention.'),
    ('cron_schedule_retention_history', null, null, 'cron', 'string', '8 1 * * 6', null,
     'When pg_cron removes history past retention.'),
    ('cron_schedule_retention_audit_log', null, null, 'cron', 'string', '0 3 * * *', null,
     'When pg_cron removes audit rows past retention.'),
    ('cron_vacuum', null, null, 'cron', 'string', '45 4 * * *', null,
     'When pg_cron vacuums the small tables.')
) as kind (setting_name, field, scale, unit, casted_as, first_value, lowest, notes);

-- The settings of every queue schema as they are in force.
create or replace view penstock.compat_configuration as
select compat_schema.schema_id, kind.setting_name,
    case
        when kind.field is null then own.setting_value
        when to_jsonb(queue) -> kind.field = 'null' then case kind.field when 'max_retries' then '-1' else '0' end
        else trim_scale((to_jsonb(queue) ->> kind.field)::numeric / kind.scale)::text
    end as setting_value,
    kind.unit, kind.casted_as, own.modified_by, own.modified_on, coalesce(own.notes, kind.notes) as notes
from penstock.compat_schema
join penstock.queue using (queue_id)
join penstock.compat_setting own using (schema_id)
join penstock.compat_setting_kind kind using (setting_name);

-- One setting as a number.
create or replace function penstock._get_setting(_schema_id integer, _name text) returns double precision
language sql stable as $$
    select setting_value::double precision
    from penstock.compat_configuration
    where schema_id = _schema_id and setting_name = _name
$$;

-- Trigger: apply an update of queue_configuration.
create or replace function penstock._change_setting() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _schema_id integer := tg_argv[0];
    kind penstock.compat_setting_kind;
begin
    select * into kind from penstock.compat_setting_kind k where k.setting_name = new.setting_name;
    if tg_op = 'INSERT' then
        raise exception using errcode = 'PN102',
            message = format('setting %L %s', new.setting_name,
                             case when kind.setting_name is null then 'is unknown' else 'is there already' end),
            hint = case when kind.setting_name is null then (
                            select 'The settings are ' || string_agg(k.setting_name, ', ' order by k.setting_name) || '.'
                            from penstock.compat_setting_kind as k
                        )
                        else 'Change it: update queue_configuration set setting_value = … where setting_name = …' end;
    elsif new.setting_name <> old.setting_name or new.unit <> old.unit or new.casted_as <> old.casted_as then
        raise exception using errcode = 'PN102',
            message = format('setting_name, unit and casted_as of %L cannot be changed', old.setting_name),
            hint = 'Change setting_value, modified_by or notes.';
    end if;
    if new.setting_value is distinct from old.setting_value then
        perform penstock._change_policy_or_setting(_schema_id, kind, new.setting_value);
    end if;
    update penstock.compat_setting s
    set modified_by = coalesce(new.modified_by, 'system'), modified_on = clock_timestamp(), notes = new.notes
    where s.schema_id = _schema_id and s.setting_name = old.setting_name
    returning s.modified_on into new.modified_on;
    return new;
end
$$;

-- Validate one value and store it in the policy or in compat_setting.
create or replace function penstock._change_policy_or_setting(_schema_id integer, kind penstock.compat_setting_kind, _value text) returns void
language plpgsql as $$
declare
    _number numeric;
begin
    if kind.casted_as = 'string' then
        -- Five fields as in cron, and a sixth that pg_cron passes over.
        if coalesce(_value, '') !~ '^[-0-9*/,$A-Za-z]+( +[-0-9*/,$A-Za-z]+){4,5}$' then
            raise exception using errcode = 'PN102',
                message = format('%s cannot be %L', kind.setting_name, _value),
                hint = 'A schedule has the five fields of cron: minute, hour, day of month, month, day of week.';
        end if;
    else
        if coalesce(_value, '') !~ '^-?[0-9]{1,12}(\.[0-9]{1,6})?$'
           or _value::numeric < kind.lowest
           or kind.setting_name = 'max_retries' and _value::numeric <> trunc(_value::numeric) then
            raise exception using errcode = 'PN102',
                message = format('%s cannot be %L', kind.setting_name, _value),
                hint = format('It is %s, not below %s.', case kind.unit
                    when 'count' then 'a whole number'
                    when 'number' then 'a number'
                    else 'a number of ' || kind.unit
                end, kind.lowest);
        end if;
        _number := _value::numeric * kind.scale;
        if kind.setting_name = 'backoff_jitter_min' and _number > penstock._get_setting(_schema_id, 'backoff_jitter_max')
           or kind.setting_name = 'backoff_jitter_max' and _number < penstock._get_setting(_schema_id, 'backoff_jitter_min') then
            raise exception using errcode = 'PN102',
                message = format('%s cannot be %L', kind.setting_name, _value),
                hint = 'backoff_jitter_min is not above backoff_jitter_max; change the other one first.';
        end if;
    end if;
    if kind.field is null then
        update penstock.compat_setting s set setting_value = _value
        where s.schema_id = _schema_id and s.setting_name = kind.setting_name;
        if kind.casted_as = 'string' then
            perform penstock._schedule_compat_jobs(_schema_id);
        end if;
    else
        perform penstock.declare(
            (select q.name from penstock.compat_schema d join penstock.queue q using (queue_id) where d.schema_id = _schema_id),
            jsonb_build_object(kind.field, case
                when kind.setting_name = 'item_ttl' and _number = 0 then null
                when kind.setting_name = 'max_retries' and _number = -1 then null
                else _number end));
    end if;
end
$$;

-- Trigger: refuse direct writes to queue_configuration rows and to tables that only calls may change.
create or replace function penstock._refuse() returns trigger
language plpgsql as $$
begin
    raise exception using errcode = 'PN200',
        message = format('rows of %I.%I cannot be %s by hand', tg_table_schema, tg_table_name,
                         case tg_op when 'INSERT' then 'inserted' when 'DELETE' then 'removed' else 'changed' end),
        hint = tg_argv[0];
end
$$;
