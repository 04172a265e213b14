-- pg_cron: the sweep inside the database, for stores without another process of Penstock.

-- Schedule the sweep every minute with pg_cron, and the jobs of every queue schema according to its settings. Repeating
-- it is harmless.
create or replace function penstock.install_cron() returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _schema_id integer;
begin
    perform penstock._require_cron();
    perform cron.schedule(penstock._job_name('sweep'), '* * * * *', 'call penstock.sweep_queues()');
    for _schema_id in select d.schema_id from penstock.compat_schema d where d.kind = 'queue' loop
        perform penstock._schedule_compat_jobs(_schema_id);
    end loop;
    return format('pg_cron sweeps database %s every minute: select * from cron.job', current_database());
end
$$;

-- Remove every job of this database from pg_cron.
create or replace function penstock.uninstall_cron() returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _removed integer;
begin
    perform penstock._require_cron();
    select count(cron.unschedule(j.jobid)) into _removed
    from cron.job j
    where starts_with(j.jobname, penstock._job_name(''));
    return format('%s jobs removed', _removed);
end
$$;

-- The name of a pg_cron job: names are shared by all databases of the cluster.
create or replace function penstock._job_name(_what text) returns text
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
                          penstock._job_name('sweep'), current_database());
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

-- Whether pg_cron is installed. Only the schema that belongs to the extension counts: anybody could create one of that
-- name.
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
    return exists (select from cron.job j where j.jobname = penstock._job_name('sweep'));
end
$$;

-- The entry point of pg_cron jobs, whose sessions have another search path.
create or replace function penstock._run_job(_schema_id integer, _setting text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    case _setting
        when 'cron_schedule_retention_queue' then perform penstock._compat_sweep_queue(_schema_id);
        when 'cron_schedule_retention_dead_letter' then perform penstock._compat_clean_dead(_schema_id, 0);
        when 'cron_schedule_retention_history' then perform penstock._compat_clean_history(_schema_id, 0);
        when 'cron_schedule_retention_audit_log' then perform penstock._compat_clean_notes(_schema_id, 0);
    end case;
end
$$;
