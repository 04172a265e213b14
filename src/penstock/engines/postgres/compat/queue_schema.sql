-- The schema of the stored-procedure convention: its calls with their names and defaults, and its tables as views. The
-- functions run with the rights of Penstock's owner, so the right to call them is all that a client needs.

create or replace function penstock._write_queue_schema(_name text, _schema_id integer) returns void
language plpgsql as $$
begin
    perform penstock._write_procedure(_name, p.name, p.parameters, format(p.call, _schema_id))
    from penstock.compat_procedure as p;
    perform penstock._write_queue_functions(_name, _schema_id);
    perform penstock._write_queue_tables(_name, _schema_id);
end
$$;

-- The procedures of the convention: their parameters, and what each calls with the number of its schema. A lease ends when
-- its time is over, so cron_unlock needs no duration; a message without retries left is a dead letter at once, so
-- cron_clean_message_queue needs no number of them.
create or replace view penstock.compat_procedure as
select *
from (values
    ('enqueue',
     'message_json json, message_id uuid default gen_random_uuid(), delay_seconds integer default 0, '
     'created_by character varying default ''system'', item_ttl integer default 0',
     '_compat_enqueue(%L, message_json, message_id, delay_seconds, created_by, item_ttl)'),
    ('message_ack', 'msg_id uuid, ack_by character varying default ''system'', reason_why text default ''ACK''',
     '_compat_settle_as(%L, msg_id, ack_by, ''ack'', reason_why)'),
    ('message_nak', 'msg_id uuid, nak_by character varying default ''system'', reason_why text default ''NAK''',
     '_compat_settle_as(%L, msg_id, nak_by, ''nak'', reason_why)'),
    ('message_rej', 'msg_id uuid, rej_by character varying default ''system'', reason_why text default ''REJ''',
     '_compat_settle_as(%L, msg_id, rej_by, ''reject'', reason_why)'),
    ('message_reschedule',
     'msg_id uuid, delay_seconds integer default 3600, done_by character varying default ''system'', '
     'reason_why text default ''Rescheduled''',
     '_compat_reschedule(%L, msg_id, delay_seconds, done_by, reason_why)'),
    ('add_audit', 'msg_id uuid, state_id integer, audit_by character varying, reason_why text',
     '_compat_add_audit(%L, msg_id, state_id, audit_by, reason_why)'),
    ('recover_dead_letter',
     'msg_id uuid default gen_random_uuid(), delay_seconds integer default 0, '
     'recovered_by character varying default ''system'', item_ttl integer default 0, '
     'reason_why character varying default ''dead letter recovered.''',
     '_compat_recover(%L, msg_id, delay_seconds, recovered_by, item_ttl, reason_why, false)'),
    ('replay_message_from_history',
     'msg_id uuid default gen_random_uuid(), delay_seconds integer default 0, '
     'recovered_by character varying default ''system'', item_ttl integer default 0, '
     'reason_why character varying default ''history recovered.''',
     '_compat_recover(%L, msg_id, delay_seconds, recovered_by, item_ttl, reason_why, true)'),
    ('reset_queue', '', '_compat_reset(%L)'),
    ('cron_unlock', 'lease_duration_in integer default 0', '_compat_sweep_queue(%L)'),
    ('cron_clean_message_queue', 'max_retries integer default 7', '_compat_sweep_queue(%L)'),
    ('cron_history_clean', 'history_retention_in integer default 0', '_compat_clean_history(%L, history_retention_in)'),
    ('cron_dead_letter_retention', 'dead_letter_retention_in integer default 0',
     '_compat_clean_dead(%L, dead_letter_retention_in)'),
    ('cron_audit_clean', 'audit_retention_in integer default 0', '_compat_clean_notes(%L, audit_retention_in)')
) as procedure (name, parameters, call);

create or replace function penstock._write_procedure(_schema text, _name text, _parameters text, _call text) returns void
language plpgsql as $$
begin
    execute format(
        'create or replace procedure %1$I.%2$I(%3$s) '
        'language plpgsql security definer set search_path = pg_catalog, pg_temp as %4$L',
        _schema, _name, _parameters, 'begin perform penstock.' || _call || '; end'
    );
end
$$;

create or replace function penstock._write_queue_functions(_name text, _schema_id integer) returns void
language plpgsql as $outer$
begin
    execute format($text$
        create or replace function %1$I.dequeue(
            client_id character varying, lease_seconds integer default -1,
            out msg_id uuid, out expires timestamp, out msg_json json)
        language sql security definer set search_path = pg_catalog, pg_temp as $call$
            select d.msg_id, d.expires::timestamp, d.msg_json from penstock._compat_dequeue(%2$L, client_id, lease_seconds) d
        $call$;

        create or replace function %1$I.calculate_offset(numberofretries integer) returns integer
        language sql security definer set search_path = pg_catalog, pg_temp as $call$
            select penstock._compat_offset(%2$L, numberofretries)
        $call$;

        create or replace function %1$I.random_between(min_value integer, max_value integer, out random_value integer)
        language sql security definer set search_path = pg_catalog, pg_temp as $call$
            select penstock._random_between(min_value, max_value)
        $call$;

        -- The name that scripts of the convention use; it runs with the rights of the caller.
        create or replace function %1$I.uuid_generate_v4() returns uuid
        language sql volatile parallel safe as $call$ select pg_catalog.gen_random_uuid() $call$;
    $text$, _name, _schema_id);
end
$outer$;

create or replace function penstock._write_queue_tables(_name text, _schema_id integer) returns void
language plpgsql as $outer$
declare
    _hints constant jsonb := jsonb_build_object(
        'message_state', 'The states are the same for all queues.',
        'message_queue', 'Send with enqueue; settle with message_ack, message_nak, message_rej or message_reschedule.',
        'message_history', 'A message goes there when it is settled with message_ack; history_retention says how long it stays.',
        'dead_letter', 'Send a copy again with recover_dead_letter; dead_letter_retention says how long it stays.',
        'message_audit', 'Write with add_audit; audit_retention says how long it stays.');
    _table text;
begin
    execute format($text$
        create or replace view %1$I.message_state with (security_barrier) as
        select message_state_id, state_title, is_fsm from penstock.compat_state;

        create or replace view %1$I.message_queue with (security_barrier) as
        select message_id, message_state_id, retries, available_on, lease_expires, leased_by, created_on, created_by,
            message_expires, message_json
        from penstock.compat_queue where schema_id = %2$L;

        create or replace view %1$I.message_history with (security_barrier) as
        select message_id, message_state_id, created_on, history_on, created_by, message_json, reason_why
        from penstock.compat_history where schema_id = %2$L;

        create or replace view %1$I.dead_letter with (security_barrier) as
        select message_id, message_state_id, created_on, dead_on, created_by, message_json, reason_why
        from penstock.compat_dead_letter where schema_id = %2$L;

        create or replace view %1$I.message_audit with (security_barrier) as
        select audit_id, message_id, message_state_id, audit_on, audit_by, reason_why
        from penstock.compat_audit where schema_id = %2$L;

        create or replace view %1$I.queue_configuration with (security_barrier) as
        select setting_name, setting_value, unit, casted_as, modified_by, modified_on, notes
        from penstock.compat_configuration where schema_id = %2$L;

        create or replace trigger change instead of insert or update on %1$I.queue_configuration
        for each row execute function penstock._change_setting(%2$L);
        create or replace trigger refuse instead of delete on %1$I.queue_configuration
        for each row execute function penstock._refuse('Settings are neither added nor removed.');
    $text$, _name, _schema_id);
    for _table in select jsonb_object_keys(_hints) loop
        execute format('create or replace trigger refuse instead of insert or update or delete on %I.%I '
                       'for each row execute function penstock._refuse(%L)', _name, _table, _hints ->> _table);
    end loop;
end
$outer$;
