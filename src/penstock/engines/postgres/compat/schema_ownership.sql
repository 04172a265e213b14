-- Ownership of compatibility schemas. A schema is identified by its oid, kept in a table that only the owner of
-- Penstock writes: neither its name nor its comment is evidence, because whoever may create schemas can choose both.
--
-- Nothing in such a schema is ever executed with the rights of Penstock's owner: jobs of pg_cron call functions of the
-- schema penstock. The rules below keep clients from calling what somebody else has put there.

-- Replace the functions and views of all compatibility schemas after an upgrade. A schema that others can write to is
-- left as it is; the upgrade is refused if its calls would fail from then on.
create or replace function penstock._write_schemas() returns void
language plpgsql as $$
declare
    d penstock.compat_schema;
    _reason text;
begin
    perform penstock._bind_schemas();
    for d in select * from penstock.compat_schema loop
        _reason := penstock._why_foreign(d.schema_oid);
        if d.schema_oid is null then
            -- Warned of above.
            perform penstock._check_calls(w.schema_oid, w.schema_name, penstock._why_foreign(w.schema_oid))
            from penstock._written_schemas(d) as w;
        elsif _reason is null then
            perform penstock._write_schema(d.schema_id);
            perform penstock._renew_compat_jobs(d.schema_id);
        else
            perform penstock._check_calls(d.schema_oid, d.schema_name, _reason);
            perform penstock._warn_of_schema(d.schema_name, _reason);
        end if;
    end loop;
end
$$;

-- Refuse an upgrade after which calls of a schema that is left as it is would fail, because the functions that they call
-- are gone. Only functions that Penstock made there count: somebody else's must not be able to stop an upgrade.
create or replace function penstock._check_calls(_schema oid, _name text, _reason text) returns void
language plpgsql as $$
declare
    _gone text := (
        select string_agg(distinct called.name[1], ', ')
        from pg_proc as p cross join lateral regexp_matches(p.prosrc, '\mpenstock\.(\w+)\(', 'g') as called (name)
        where p.pronamespace = _schema and penstock._is_trusted(p.proowner) and not exists (
            select from pg_proc as f where f.pronamespace = 'penstock'::regnamespace and f.proname = called.name[1]
        )
    );
begin
    if _gone is not null then
        raise exception using errcode = 'PN200', message = format(
            'schema %I is not written to (%s), and its calls would fail: this version has no function %s. Nothing was '
            'changed: drop the schema or give it back to Penstock''s owner, then run `penstock migrate` again',
            _name, _reason, _gone
        );
    end if;
end
$$;

-- Follow schemas that were renamed or dropped by hand.
create or replace function penstock._follow_schemas() returns void
language plpgsql as $$
begin
    update penstock.compat_schema as d set schema_name = n.nspname
    from pg_namespace as n
    where n.oid = d.schema_oid and d.home = penstock._database_identity() and n.nspname <> d.schema_name;
    delete from penstock.compat_schema as d
    where d.home = penstock._database_identity() and not exists (select 1 from pg_namespace as n where n.oid = d.schema_oid);
    delete from penstock.compat_schema as d
    where d.schema_oid is null and not exists (select 1 from pg_namespace as n where n.nspname = d.schema_name);
end
$$;

-- Bind rows without an oid, or with one of another database, to their schemas: after the upgrade to oids and after a
-- restore. The evidence is a trigger that calls a function of Penstock with the row's number, which only its owner can
-- create. Returns how many rows were bound.
create or replace function penstock._bind_schemas() returns integer
language plpgsql as $$
declare
    d penstock.compat_schema;
    _schema oid;
    _bound integer := 0;
begin
    perform penstock._follow_schemas();
    for d in select * from penstock.compat_schema where schema_oid is null or home <> penstock._database_identity() loop
        select w.schema_oid into _schema
        from penstock._written_schemas(d) as w
        where penstock._why_foreign(w.schema_oid) is null
        order by w.schema_name = d.schema_name desc
        limit 1;
        update penstock.compat_schema set schema_oid = _schema, home = case when _schema is not null then penstock._database_identity() end
        where schema_id = d.schema_id;
        if _schema is not null then
            _bound := _bound + 1;
        else
            perform penstock._warn_of_schema(w.schema_name, penstock._why_foreign(w.schema_oid))
            from penstock._written_schemas(d) as w;
        end if;
    end loop;
    perform penstock._follow_schemas();
    return _bound;
end
$$;

-- The schemas that contain objects created for a row.
create or replace function penstock._written_schemas(d penstock.compat_schema, out schema_oid oid, out schema_name text) returns setof record
language sql stable as $$
    select distinct n.oid, n.nspname::text
    from pg_trigger as t
    join pg_class as c on c.oid = t.tgrelid
    join pg_namespace as n on n.oid = c.relnamespace
    join pg_proc as p on p.oid = t.tgfoid
    where p.pronamespace = 'penstock'::regnamespace
        and p.proname = case d.kind when 'queue' then '_change_setting' else '_message_insert' end
        and t.tgargs = convert_to(d.schema_id::text, 'UTF8') || '\x00'::bytea
$$;

-- Raise unless the schema of a row can be written to.
create or replace function penstock._check_schema(d penstock.compat_schema) returns void
language plpgsql stable as $$
declare
    _reason text := case
        when penstock._is_bound(d) then penstock._why_foreign(d.schema_oid)
        else 'it was not made in this database, or is gone'
    end;
begin
    if _reason is not null then
        raise exception using errcode = 'PN200',
            message = format('schema %I is not written to: %s', d.schema_name, _reason),
            hint = 'Drop it or give it back to Penstock''s owner, then run `penstock migrate`.';
    end if;
end
$$;

create or replace function penstock._warn_of_schema(_name text, _reason text) returns void
language plpgsql as $$
begin
    raise warning using message = format('schema %I is not written to: %s', _name, coalesce(_reason, 'it has no row')),
        hint = 'Its calls may do what somebody else wants. Drop it, or give it back to Penstock''s owner and migrate again.';
end
$$;

-- Whether the oid of a row belongs to this database and the schema exists.
create or replace function penstock._is_bound(d penstock.compat_schema) returns boolean
language sql stable as $$
    select d.home = penstock._database_identity() and exists (select 1 from pg_namespace as n where n.oid = d.schema_oid)
$$;

-- The cluster and the database in which oids were assigned.
create or replace function penstock._database_identity() returns text
language sql stable as $$
    select format('%s/%s', c.system_identifier, d.oid)
    from pg_control_system() as c, pg_database as d
    where d.datname = current_database()
$$;

-- Why somebody else could put objects into a schema, or has done so; null when it is ours alone.
create or replace function penstock._why_foreign(_schema oid) returns text
language sql stable as $$
    select reason
    from (
        select 1 as place, format('it belongs to role %s', n.nspowner::regrole) as reason
        from pg_namespace as n
        where n.oid = _schema and not penstock._is_trusted(n.nspowner)
        union all
        select 2, format('role %s may create objects in it', case a.grantee when 0 then 'public' else a.grantee::regrole::text end)
        from pg_namespace as n cross join lateral aclexplode(n.nspacl) as a
        where n.oid = _schema and a.privilege_type = 'CREATE' and not penstock._is_trusted(a.grantee)
        union all
        select 3, format('%s in it belongs to role %s', p.oid::regprocedure, p.proowner::regrole)
        from pg_proc as p
        where p.pronamespace = _schema and not penstock._is_trusted(p.proowner)
        union all
        select 3, format('%s in it belongs to role %s', c.oid::regclass, c.relowner::regrole)
        from pg_class as c
        where c.relnamespace = _schema and not penstock._is_trusted(c.relowner)
        union all
        select 3, format('type %s in it belongs to role %s', t.oid::regtype, t.typowner::regrole)
        from pg_type as t
        where t.typnamespace = _schema and t.typrelid = 0 and t.typelem = 0 and not penstock._is_trusted(t.typowner)
    ) as found
    order by place, reason
    limit 1
$$;

-- Whether a role has the rights of Penstock's owner anyway. 0 stands for everybody.
create or replace function penstock._is_trusted(_role oid) returns boolean
language sql stable as $$
    select case when _role = 0 then false else pg_has_role(_role, n.nspowner, 'usage') end
    from pg_namespace as n
    where n.nspname = 'penstock'
$$;
