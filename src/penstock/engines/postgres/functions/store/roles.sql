-- Roles and their rights. The roles belong to the whole cluster and cannot log in: an application's own role is made a
-- member.
--
-- Nobody may write to a table. Functions run with the rights of Penstock's owner and a fixed search path, so the right
-- to call them is all that is needed. Only an observer may read the tables; every role may read which queues exist and
-- their policies.

-- Which functions a role may call. A name stands for all functions of that name.
create or replace view penstock.role_right as
select role, unnest(string_to_array(functions, ' ')) as function
from (values
    ('penstock_producer',
        'now_us injected_now send send_bytes send_many append send_messages prepare prepare_briefly is_prepared '
        'batch_mark batch_open batch_set_end batch_set_abort batch_start batch_cancel stage_chunk stage_part '
        'release_staged discard_staged begin_prepared_write reserve_prepared_write reserve_positions '
        'finish_prepared_write withdraw_prepared_write decided_prepared_writes forget_prepared_writes is_live'),
    ('penstock_consumer',
        'now_us injected_now receive receive_messages take_over_leases ready_in settle ack nak reject reschedule '
        'extend extend_each ack_whole leases position_of register heartbeat deregister advance fitting cancelled '
        'keep_traces'),
    ('penstock_observer',
        'now_us injected_now stats audit list_audit peek next_messages find browse position_of unread ended '
        'ended_messages states error_trace message_count due_messages waiting_messages ready_messages '
        'batch_members situation list_dead_letters leases ready_in reached unread_after consumers horizon '
        'earliest mark_at cut parts check_part settled places fitting is_live cancelled preview_seek '
        'preview_retention'),
    ('penstock_admin',
        'declare remove trim flush clear delete_queue forget pause resume seek redrive purge sweep claim_sweep '
        'decide sweep_queue sweep_queues sweep_consumers delete_trimmed schedule_put schedule_pause schedule_run '
        'schedule_fire unschedule record_facts create_queue_schema lost_messages recover_lost lost_entries '
        'create_message_schema drop_queue_schema drop_message_schema install_cron uninstall_cron')
) as rights (role, functions);

-- Create missing roles and grant every role its rights, as every `penstock migrate` does. Needs a role that may create
-- roles, or existing roles.
create or replace function penstock.grant_roles() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    one record;
begin
    perform penstock._make_roles();
    for one in
        select r.role, p.oid::regprocedure as called
        from penstock.role_right r
        join pg_proc p on p.proname = r.function and p.pronamespace = 'penstock'::regnamespace
    loop
        execute format('grant execute on routine %s to %I', one.called, one.role);
    end loop;
    grant select on penstock.store, penstock.queue to penstock_producer, penstock_consumer;
    grant select on all tables in schema penstock to penstock_observer;
    perform penstock._follow_schemas();
    perform penstock._grant_compat_schema(d.schema_name, d.kind)
    from penstock.compat_schema as d
    where penstock._is_bound(d) and penstock._why_foreign(d.schema_oid) is null;
end
$$;

-- Create the roles; the administrator is a member of the others. Several databases of a cluster may do so at the same
-- time.
create or replace function penstock._make_roles() returns void
language plpgsql as $$
declare
    _name text;
begin
    perform pg_advisory_xact_lock(hashtext('penstock roles'));
    for _name in select distinct r.role from penstock.role_right r loop
        if to_regrole(_name) is null then
            begin
                execute format('create role %I nologin', _name);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
        execute format('grant usage on schema penstock to %I', _name);
    end loop;
    for _name in select distinct r.role from penstock.role_right r where r.role <> 'penstock_admin' loop
        if not exists (select from pg_auth_members m
                       where m.roleid = to_regrole(_name) and m.member = to_regrole('penstock_admin')) then
            begin
                execute format('grant %I to penstock_admin', _name);
            exception when unique_violation then
                null;
            end;
        end if;
    end loop;
end
$$;

-- Grant the rights in a compatibility schema. To let an application use one queue only, grant its role usage of the
-- schema and the calls it needs, and none of the roles of Penstock.
create or replace function penstock._grant_compat_schema(_name text, _kind text) returns void
language plpgsql as $$
begin
    execute format('revoke all on all routines in schema %I from public', _name);
    if to_regprocedure(format('%I.uuid_generate_v4()', _name)) is not null then
        execute format('grant execute on function %I.uuid_generate_v4 to public', _name);
    end if;
    if to_regrole('penstock_admin') is null then
        return;
    end if;
    execute format('grant usage on schema %I to penstock_producer, penstock_consumer, penstock_observer, penstock_admin', _name);
    if _kind = 'queue' then
        execute format($text$
            grant execute on procedure %1$I.enqueue to penstock_producer;
            grant execute on function %1$I.dequeue to penstock_consumer;
            grant execute on procedure %1$I.message_ack, %1$I.message_nak, %1$I.message_rej, %1$I.message_reschedule,
                %1$I.add_audit to penstock_consumer;
            grant select on all tables in schema %1$I to penstock_observer;
            grant insert, update, delete on %1$I.queue_configuration to penstock_admin;
            grant execute on all routines in schema %1$I to penstock_admin;
        $text$, _name);
    else
        execute format($text$
            grant insert, select (id) on %1$I.message to penstock_producer;
            grant select, update, delete on %1$I.message to penstock_consumer;
            grant insert, select on %1$I.message_archive to penstock_consumer;
            grant select on all tables in schema %1$I to penstock_observer;
            grant delete on %1$I.message_archive to penstock_admin;
        $text$, _name);
    end if;
end
$$;

-- Public may only call conversions, which views call with the rights of the reader.
revoke all on all routines in schema penstock from public;

grant execute on function penstock.payload_json, penstock.payload_jsonb, penstock.headers_jsonb, penstock.to_time,
    penstock.from_time, penstock.made_id(bigint, integer, bigint) to public;

select penstock._write_schemas();

do $$
begin
    perform penstock.grant_roles();
exception when insufficient_privilege then
    raise warning using message = format('the roles penstock_producer and so on were not set up: %s', sqlerrm),
        hint = 'Let a role that may create roles call: select penstock.grant_roles()';
end
$$;
