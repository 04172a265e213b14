-- Objects of the compatibility schemas that need more than `create or replace`: those whose types have changed, and the
-- two names that scripts of the conventions use without a schema.

-- Drop views and functions of an earlier version, whose times had a time zone, because the type of a column cannot be
-- replaced. Returns the rights that others had on them.
create or replace function penstock._drop_outdated(_schema text) returns jsonb
language plpgsql as $$
declare
    one record;
    _rights jsonb := penstock._rights_on_outdated(_schema);
    _dependents text;
begin
    for one in select distinct r.kind, r.name from jsonb_to_recordset(_rights) as r (kind text, name text) loop
        if one.kind = 'function' then
            execute format('drop function %I.dequeue(character varying, integer)', _schema);
        else
            execute format('drop view %I.%I', _schema, one.name);
        end if;
    end loop;
    return _rights;
exception when dependent_objects_still_exist then
    get stacked diagnostics _dependents = pg_exception_detail;
    raise exception using errcode = 'PN200',
        message = format(
            '%I.%I has times without time zone from this version on and cannot be made anew: %s. Drop what depends on it, '
            'run `penstock migrate`, and create it again', _schema, one.name, replace(_dependents, E'\n', ', ')
        );
end
$$;

-- The rights on views and functions of a schema whose times have a time zone. Each object occurs at least once: its
-- owner has all rights.
create or replace function penstock._rights_on_outdated(_schema text) returns jsonb
language sql stable as $$
    with outdated as (
        select 'table' as kind, c.relname as name, c.oid, format('%I.%I', _schema, c.relname) as object,
            coalesce(c.relacl, acldefault('r', c.relowner)) as acl
        from pg_class as c
        where c.relnamespace = to_regnamespace(format('%I', _schema)) and c.relkind = 'v'
            and c.relname in ('message', 'message_archive') and exists (
                select from pg_attribute as a where a.attrelid = c.oid and a.atttypid = 'timestamptz'::regtype
            )
        union all
        select 'function', p.proname, p.oid, p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner))
        from pg_proc as p
        where p.pronamespace = to_regnamespace(format('%I', _schema)) and p.proname = 'dequeue'
            and 'timestamptz'::regtype = any (p.proallargtypes)
    ),
    allowed as (
        select o.kind, o.name, o.object, a.privilege_type as privilege, a.grantee, a.is_grantable
        from outdated as o cross join lateral aclexplode(o.acl) as a
        union all
        select o.kind, o.name, o.object, format('%s (%I)', a.privilege_type, t.attname), a.grantee, a.is_grantable
        from outdated as o
        join pg_attribute as t on t.attrelid = o.oid and o.kind = 'table'
        cross join lateral aclexplode(t.attacl) as a
    )
    select coalesce(jsonb_agg(jsonb_build_object(
        'kind', kind, 'name', name, 'object', format('%s %s', kind, object), 'privilege', privilege,
        'grantee', case grantee when 0 then 'public' else grantee::regrole::text end,
        'and_option', case when is_grantable then 'with grant option' else '' end
    )), '[]')
    from allowed
$$;

-- Grant rights again.
create or replace function penstock._grant_again(_rights jsonb) returns void
language plpgsql as $$
declare
    one record;
begin
    for one in
        select r.* from jsonb_to_recordset(_rights) as r (object text, privilege text, grantee text, and_option text)
    loop
        execute format('grant %s on %s to %s %s', one.privilege, one.object, one.grantee, one.and_option);
    end loop;
end
$$;

-- The schema of the type of `result` in a message_archive. Scripts of the convention name it without a schema and
-- expect it in `public`, so it is created there, or else in the schema itself. An existing type is used if it has the
-- four results and a trusted owner, because dropping a type can drop the objects that use it.
create or replace function penstock._status_schema(_schema text) returns text
language plpgsql as $$
declare
    _found text;
begin
    select n.nspname into _found
    from pg_attribute as a join pg_type as t on t.oid = a.atttypid join pg_namespace as n on n.oid = t.typnamespace
    where a.attrelid = to_regclass(format('%I.message_archive', _schema)) and a.attname = 'result';
    if found then
        return _found;
    end if;
    if to_regtype('public.message_status') is null then
        begin
            create type public.message_status as enum ('success', 'failed', 'rejected', 'lock_expired');
            execute format('comment on type public.message_status is %L', penstock._public_comment());
        exception when insufficient_privilege or invalid_schema_name or duplicate_object or unique_violation then
            perform penstock._warn_of_public('type message_status', sqlerrm);
        end;
    end if;
    if exists (
        select from pg_type as t
        where t.oid = to_regtype('public.message_status') and penstock._is_trusted(t.typowner)
            and array(select e.enumlabel::text from pg_enum as e where e.enumtypid = t.oid)
                @> '{success,failed,rejected,lock_expired}'
    ) then
        return 'public';
    end if;
    if to_regtype(format('%I.message_status', _schema)) is null then
        execute format(
            'create type %I.message_status as enum (''success'', ''failed'', ''rejected'', ''lock_expired'')', _schema
        );
    end if;
    return _schema;
end
$$;

-- Create uuid_generate_v4, which scripts of the stored-procedure convention call without a schema (it belongs to uuid-
-- ossp). Penstock itself does not call it.
create or replace function penstock._add_uuid_function() returns void
language plpgsql as $$
begin
    if not exists (
        select from pg_proc as p join pg_namespace as n on n.oid = p.pronamespace
        where n.nspname = 'public' and p.proname = 'uuid_generate_v4'
    ) then
        create function public.uuid_generate_v4() returns uuid
        language sql volatile parallel safe as 'select pg_catalog.gen_random_uuid()';
        execute format('comment on function public.uuid_generate_v4() is %L', penstock._public_comment());
    end if;
exception when insufficient_privilege or invalid_schema_name or duplicate_function or unique_violation then
    perform penstock._warn_of_public('function uuid_generate_v4', sqlerrm);
end
$$;

-- Remove objects from `public` with the last schema of the kind, unless something else depends on them.
create or replace function penstock._clean_public(_kind text) returns void
language plpgsql as $$
begin
    if exists (select 1 from penstock.compat_schema where kind = _kind) then
        return;
    elsif _kind = 'message' and exists (
        select from pg_type as t
        where t.oid = to_regtype('public.message_status') and penstock._is_trusted(t.typowner)
            and obj_description(t.oid, 'pg_type') = penstock._public_comment()
    ) then
        drop type public.message_status;
    elsif _kind = 'queue' and exists (
        select from pg_proc as p
        where p.oid = to_regprocedure('public.uuid_generate_v4()') and penstock._is_trusted(p.proowner)
            and obj_description(p.oid, 'pg_proc') = penstock._public_comment()
    ) then
        drop function public.uuid_generate_v4();
    end if;
exception when dependent_objects_still_exist then
    null;
end
$$;

-- The comment by which Penstock recognises its objects in `public`.
create or replace function penstock._public_comment() returns text
language sql immutable as $$
    select 'Made by Penstock for scripts of other conventions. It goes with the last schema that they use.'
$$;

create or replace function penstock._warn_of_public(_what text, _reason text) returns void
language plpgsql as $$
begin
    raise notice using message = format('%s was not added to schema public: %s', _what, _reason),
        hint = 'Name the schema of the conventions in the search path of scripts that use it without one.';
end
$$;
