-- pg_cron jobs of the compatibility schemas.

-- Schedule the jobs of a queue schema at the times of its settings. They run with the rights of the owner, so they call
-- nothing in the schema itself.
create or replace function penstock._schedule_compat_jobs(_schema_id integer) returns void
language plpgsql as $$
declare
    job record;
begin
    if not penstock._cron_is_installed() then
        return;
    end if;
    perform penstock._unschedule_compat_jobs(_schema_id);
    for job in
        select c.setting_name, c.setting_value, case c.setting_name
            when 'cron_vacuum'
                then 'vacuum penstock.lease, penstock.tracked, penstock.held, penstock.dead_letter, penstock.compat_note'
            else format('select penstock._run_job(%s, %L)', _schema_id, c.setting_name)
        end as command
        from penstock.compat_configuration c
        where c.schema_id = _schema_id and c.unit = 'cron'
    loop
        perform cron.schedule(penstock._job_name(_schema_id || ':' || job.setting_name), job.setting_value, job.command);
    end loop;
end
$$;

-- Schedule the jobs of a queue schema again after an upgrade: their commands may name tables that were renamed. Jobs of
-- other roles are left alone.
create or replace function penstock._renew_compat_jobs(_schema_id integer) returns void
language plpgsql as $$
begin
    if not penstock._cron_is_installed() then
        return;
    end if;
    if exists (
        select from cron.job as j
        where starts_with(j.jobname, penstock._job_name(_schema_id || ':')) and j.username = current_user
    ) then
        perform penstock._schedule_compat_jobs(_schema_id);
    end if;
end
$$;

create or replace function penstock._unschedule_compat_jobs(_schema_id integer) returns void
language plpgsql as $$
begin
    if penstock._cron_is_installed() then
        perform cron.unschedule(j.jobid) from cron.job j where starts_with(j.jobname, penstock._job_name(_schema_id || ':'));
    end if;
end
$$;
