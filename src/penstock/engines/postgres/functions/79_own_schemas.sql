-- Which schemas are ours. A schema is known by its oid, kept in a table that only the owner of Penstock writes: neither
-- its name nor its comment says anything, because whoever may create schemas can choose both.
--
-- Nothing in such a schema is ever executed with the rights of Penstock's owner: jobs of pg_cron call functions of the
-- schema penstock. The rules below keep clients from calling what somebody else has put there.

-- After an upgrade: writes the functions and views of all schemas again. One that others can write to is left as it is.
create or replace function penstock._furnish_all() returns void
language plpgsql as $$
declare
    d penstock.door;
begin
    perform penstock._bind_schemas();
    for d in select * from penstock.door where schema_oid is not null loop
        if penstock._why_foreign(d.schema_oid) is null then
            perform penstock._furnish(d.door_id);
        else
            perform penstock._warn_of_schema(d.schema_name, penstock._why_foreign(d.schema_oid));
        end if;
    end loop;
end
$$;

-- Schemas may have been renamed or dropped by hand.
create or replace function penstock._follow_schemas() returns void
language plpgsql as $$
begin
    update penstock.door as d set schema_name = n.nspname
    from pg_namespace as n
    where n.oid = d.schema_oid and d.home = penstock._home() and n.nspname <> d.schema_name;
    delete from penstock.door as d
    where d.home = penstock._home() and not exists (select 1 from pg_namespace as n where n.oid = d.schema_oid);
    delete from penstock.door as d
    where d.schema_oid is null and not exists (select 1 from pg_namespace as n where n.nspname = d.schema_name);
end
$$;

-- Finds the schemas of rows that have none or were written in another database, which gives other oids: after the upgrade
-- to oids and after a restore. The witness is a trigger that calls a function of Penstock with the row's number: nobody
-- but its owner may make one. How many rows were bound.
create or replace function penstock._bind_schemas() returns integer
language plpgsql as $$
declare
    d penstock.door;
    _schema oid;
    _bound integer := 0;
begin
    perform penstock._follow_schemas();
    for d in select * from penstock.door where schema_oid is null or home <> penstock._home() loop
        select w.schema_oid into _schema
        from penstock._witnesses(d) as w
        where penstock._why_foreign(w.schema_oid) is null
        order by w.schema_name = d.schema_name desc
        limit 1;
        update penstock.door set schema_oid = _schema, home = case when _schema is not null then penstock._home() end
        where door_id = d.door_id;
        if _schema is not null then
            _bound := _bound + 1;
        else
            perform penstock._warn_of_schema(w.schema_name, penstock._why_foreign(w.schema_oid))
            from penstock._witnesses(d) as w;
        end if;
    end loop;
    perform penstock._follow_schemas();
    return _bound;
end
$$;

-- The schemas that have been written to for a row.
create or replace function penstock._witnesses(d penstock.door, out schema_oid oid, out schema_name text) returns setof record
language sql stable as $$
    select distinct n.oid, n.nspname::text
    from pg_trigger as t
    join pg_class as c on c.oid = t.tgrelid
    join pg_namespace as n on n.oid = c.relnamespace
    join pg_proc as p on p.oid = t.tgfoid
    where p.pronamespace = 'penstock'::regnamespace
        and p.proname = case d.kind when 'queue' then '_change_setting' else '_message_insert' end
        and t.tgargs = convert_to(d.door_id::text, 'UTF8') || '\x00'::bytea
$$;

-- Raises unless the schema of a row can be written to.
create or replace function penstock._check_schema(d penstock.door) returns void
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

-- Whether the oid of a row is one of this database, and the schema is still there.
create or replace function penstock._is_bound(d penstock.door) returns boolean
language sql stable as $$
    select d.home = penstock._home() and exists (select 1 from pg_namespace as n where n.oid = d.schema_oid)
$$;

-- Where oids have been given: the cluster and the database in it.
create or replace function penstock._home() returns text
language sql stable as $$
    select format('%s/%s', c.system_identifier, d.oid)
    from pg_control_system() as c, pg_database as d
    where d.datname = current_database()
$$;

-- Why somebody else could put something into a schema, or has done so; null when it is ours alone.
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
    ) as found
    order by place, reason
    limit 1
$$;

create or replace function penstock._owner_is_trusted(_schema oid) returns boolean
language sql stable as $$
    select penstock._is_trusted(n.nspowner) from pg_namespace as n where n.oid = _schema
$$;

-- Whether a role has the rights of Penstock's owner anyway. 0 stands for everybody.
create or replace function penstock._is_trusted(_role oid) returns boolean
language sql stable as $$
    select case when _role = 0 then false else pg_has_role(_role, n.nspowner, 'usage') end
    from pg_namespace as n
    where n.nspname = 'penstock'
$$;
