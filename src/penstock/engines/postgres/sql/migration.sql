-- name: lock
-- One migration at a time.
select pg_advisory_xact_lock(hashtextextended('penstock migrate', 0));

-- name: prepare
-- Functions may call others that are created later. No schema that others may write to is in the search path.
set local check_function_bodies = off;
set local search_path = pg_catalog, pg_temp;

-- name: intruders
-- Why the schema cannot be trusted: a role without the rights of this one owns it or may create functions in it.
select 'schema penstock belongs to role ' || n.nspowner::regrole::text
from pg_namespace as n
where n.nspname = 'penstock' and n.nspowner <> current_user::regrole
    and not (select r.rolsuper from pg_roles as r where r.oid = n.nspowner)
union all
select 'role ' || case a.grantee when 0 then 'public' else a.grantee::regrole::text end
    || ' may create objects in schema penstock'
from pg_namespace as n cross join lateral aclexplode(n.nspacl) as a
where n.nspname = 'penstock' and a.privilege_type = 'CREATE'
    and case when a.grantee = 0 then true else not pg_has_role(a.grantee, n.nspowner, 'usage') end;

-- name: refuse_intruders
-- The same check for the printed script: the owner of an existing schema could change its functions.
do $$
begin
    if exists (select from pg_namespace where nspname = 'penstock' and nspowner <> current_user::regrole) then
        raise exception 'schema penstock belongs to another role: nothing was changed';
    end if;
end
$$;

-- name: drop_functions
-- Drop internal functions before they are loaded: `create or replace` keeps parameters and results, and leaves functions that
-- this version does not have. Those on which a trigger or a view depends stay.
do $$
declare
    one record;
begin
    for one in
        select p.oid::regprocedure as name from pg_proc as p
        where p.pronamespace = 'penstock'::regnamespace and starts_with(p.proname, '_')
    loop
        begin
            execute format('drop routine if exists %s', one.name);
        exception when dependent_objects_still_exist then
            null;
        end;
    end loop;
end
$$;

-- name: begin_store
-- The facts about a new store.
insert into penstock.store (schema_version, salt, epoch, system_identifier)
select %s, %s, %s, system_identifier from pg_control_system();

-- name: set_version
-- Record the number of migrations.
update penstock.store set schema_version = %s;

-- name: set_digest
-- Record the digest of the functions.
update penstock.store set functions_digest = %s;

-- name: rebase
-- After a restore into another cluster: replace the transaction numbers.
select penstock._rebase_store();

-- name: bind_schemas
-- After a restore: find the compatibility schemas by their triggers, because their oids have changed.
select penstock._bind_schemas();
