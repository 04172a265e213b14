-- pg_cron: the sweep inside the database, for those who run nothing of Penstock outside of it.

-- Lets pg_cron run the sweep every minute, and the jobs of every queue schema as its settings say. Again is harmless.
create or replace function penstock.install_cron() returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _door integer;
begin
    perform penstock._require_cron();
    perform cron.schedule(penstock._job('sweep'), '* * * * *', 'call penstock.sweep_queues()');
    for _door in select d.door_id from penstock.door d where d.kind = 'queue' loop
        perform penstock._schedule_door(_door);
    end loop;
    return format('pg_cron sweeps database %s every minute: select * from cron.job', current_database());
end
$$;

-- Takes every job of this database out of pg_cron again.
create or replace function penstock.uninstall_cron() returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _removed integer;
begin
    perform penstock._require_cron();
    select count(cron.unschedule(j.jobid)) into _removed
    from cron.job j
    where starts_with(j.jobname, penstock._job(''));
    return format('%s jobs removed', _removed);
end
$$;

-- Names of jobs are shared by everything in the cluster that uses pg_cron.
create or replace function penstock._job(_what text) returns text
language sql stable as $$
    select format('penstock:%s:%s', current_database(), _what)
$$;

create or replace function penstock._require_cron() returns void
language plpgsql stable as $$
declare
    home constant text := current_setting('cron.database_name', true);
    version constant text := current_setting('server_version_num')::integer / 10000;
begin
    if exists (select from pg_extension where extname = 'pg_cron') then
        return;
    elsif home <> current_database() then
        raise exception using errcode = 'PN200',
            message = format('pg_cron works in database %L, not in %L', home, current_database()),
            hint = format('Call there: select cron.schedule_in_database(%L, ''* * * * *'', ''call penstock.sweep_queues()'', %L)',
                          penstock._job('sweep'), current_database());
    elsif not exists (select from pg_available_extensions where name = 'pg_cron') then
        raise exception using errcode = 'PN200',
            message = 'pg_cron is not installed on this server',
            hint = format('Install it (Debian: postgresql-%s-cron), add pg_cron to shared_preload_libraries, restart, then '
                          'create extension pg_cron. Without it `penstock serve` or a worker runs the sweep.', version);
    end if;
    raise exception using errcode = 'PN200',
        message = 'pg_cron is installed on this server, but not in this database',
        hint = case when home is null then 'Add pg_cron to shared_preload_libraries, restart, then create extension pg_cron.'
                    else 'As a superuser: create extension pg_cron.' end;
end
$$;

-- Only the schema that the extension has brought along counts: anybody could make one of that name.
create or replace function penstock._cron_is_installed() returns boolean
language plpgsql stable as $$
begin
    if not exists (
        select from pg_extension as e
        join pg_depend as d on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.deptype = 'e'
        join pg_namespace as n on d.classid = 'pg_namespace'::regclass and d.objid = n.oid
        where e.extname = 'pg_cron' and n.nspname = 'cron'
    ) then
        return false;
    end if;
    return exists (select from cron.job j where j.jobname = penstock._job('sweep'));
end
$$;

-- The jobs of a queue schema, at the times of its settings. They run with the rights of the owner, so they call nothing
-- that lies in the schema itself.
create or replace function penstock._schedule_door(_door integer) returns void
language plpgsql as $$
declare
    job record;
begin
    if not penstock._cron_is_installed() then
        return;
    end if;
    perform penstock._unschedule_door(_door);
    for job in
        select c.setting_name, c.setting_value, case c.setting_name
            when 'cron_vacuum'
                then 'vacuum penstock.lease, penstock.tracked, penstock.held, penstock.dead_letter, penstock.door_note'
            else format('select penstock._run_job(%s, %L)', _door, c.setting_name)
        end as command
        from penstock.door_configuration c
        where c.door_id = _door and c.unit = 'cron'
    loop
        perform cron.schedule(penstock._job(_door || ':' || job.setting_name), job.setting_value, job.command);
    end loop;
end
$$;

-- What pg_cron calls, in a session whose search path is not ours.
create or replace function penstock._run_job(_door integer, _setting text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    case _setting
        when 'cron_schedule_retention_queue' then perform penstock._door_sweep_queue(_door);
        when 'cron_schedule_retention_dead_letter' then perform penstock._door_clean_dead(_door, 0);
        when 'cron_schedule_retention_history' then perform penstock._door_clean_history(_door, 0);
        when 'cron_schedule_retention_audit_log' then perform penstock._door_clean_notes(_door, 0);
    end case;
end
$$;

create or replace function penstock._unschedule_door(_door integer) returns void
language plpgsql as $$
begin
    if penstock._cron_is_installed() then
        perform cron.unschedule(j.jobid) from cron.job j where starts_with(j.jobname, penstock._job(_door || ':'));
    end if;
end
$$;
