-- Compatibility schemas with the calls of two other queue conventions: creating, upgrading and dropping them. A schema
-- name is only ever formatted with %I; the text of a function contains the number of the schema.

-- Create a schema in which the calls of the stored-procedure convention work on a queue, by default the one of its own
-- name. A new queue gets the convention's settings; an existing one keeps its policy.
create or replace function penstock.create_queue_schema(name text, queue text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _schema_id integer;
begin
    _schema_id := penstock._create_compat_schema(name, 'queue', coalesce(queue, name), (
        select jsonb_object_agg(k.field, k.first_value::numeric * k.scale)
        from penstock.compat_setting_kind k
        where k.field is not null));
    insert into penstock.compat_setting (schema_id, setting_name, setting_value)
    select _schema_id, k.setting_name, case when k.field is null then k.first_value end
    from penstock.compat_setting_kind k;
    perform penstock._write_schema(_schema_id);
end
$$;

-- Create a schema with the tables message and message_archive of the LISTEN/NOTIFY convention, on the queue of its own
-- name or another. A new queue delivers at most once, because there a message ends with its lock.
create or replace function penstock.create_message_schema(name text, queue text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _schema_id integer;
begin
    _schema_id := penstock._create_compat_schema(name, 'message', coalesce(queue, name), jsonb_build_object(
        'delivery', 'at_most_once', 'lease_seconds', 60, 'history_seconds', 91 * 86400));
    perform penstock._write_schema(_schema_id);
end
$$;

-- Drop a schema of the stored-procedure convention. The queue and its messages stay, unless they are to be flushed.
create or replace function penstock.drop_queue_schema(name text, flush boolean default false) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock._drop_compat_schema(name, 'queue', flush);
end
$$;

-- Drop a schema of the LISTEN/NOTIFY convention.
create or replace function penstock.drop_message_schema(name text, flush boolean default false) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock._drop_compat_schema(name, 'message', flush);
end
$$;

-- Create the schema, its row, and the queue if it is new.
create or replace function penstock._create_compat_schema(_name text, _kind text, _queue text, _policy jsonb) returns integer
language plpgsql as $$
declare
    _schema_id integer;
begin
    perform penstock._check_schema_name(_name);
    perform penstock._follow_schemas();
    begin
        execute format('create schema %I', _name);
    exception when duplicate_schema then
        raise exception using errcode = 'PN200',
            message = format('schema %I is there already', _name),
            hint = 'Nothing was changed. Choose another name; the second argument names the queue.';
    end;
    if not exists (select 1 from penstock.queue where name = _queue) then
        perform penstock.declare(_queue, _policy);
    end if;
    insert into penstock.compat_schema (schema_name, schema_oid, home, kind, queue_id)
    select n.nspname, n.oid, penstock._database_identity(), _kind, q.queue_id
    from penstock.queue as q, pg_namespace as n
    where q.name = _queue and n.nspname = _name
    returning schema_id into _schema_id;
    return _schema_id;
end
$$;

create or replace function penstock._check_schema_name(_name text) returns void
language plpgsql as $$
begin
    if coalesce(_name, '') = '' or _name ~ '[[:cntrl:]]' then
        raise exception using errcode = 'PN101',
            message = format('schema name %L is empty or has a control character', _name),
            hint = 'A schema name has 1 to 63 bytes.';
    elsif octet_length(_name) > 63 then
        -- PostgreSQL would cut it, and two long names could meet.
        raise exception using errcode = 'PN101',
            message = format('schema name %s has %s bytes', penstock._quote_value(_name), octet_length(_name)),
            hint = 'Names in PostgreSQL have at most 63 bytes. The second argument names a queue of up to 255.';
    elsif _name ~ '^pg_' or _name in ('penstock', 'information_schema') then
        raise exception using errcode = 'PN101',
            message = format('schema name %L is taken', _name),
            hint = 'Names that begin with pg_ belong to PostgreSQL, and penstock to Penstock.';
    end if;
end
$$;

-- Create the functions and views of a schema, or replace them after an upgrade.
create or replace function penstock._write_schema(_schema_id integer) returns void
language plpgsql as $$
declare
    d penstock.compat_schema;
    _rights jsonb;
begin
    select * into strict d from penstock.compat_schema where schema_id = _schema_id;
    perform penstock._check_schema(d);
    _rights := penstock._drop_outdated(d.schema_name);
    if d.kind = 'queue' then
        perform penstock._write_queue_schema(d.schema_name, _schema_id);
        perform penstock._add_uuid_function();
        perform penstock._schedule_compat_jobs(_schema_id);
    else
        perform penstock._write_message_schema(d.schema_name, _schema_id);
    end if;
    perform penstock._set_compat_notify(d.queue_id);
    perform penstock._grant_compat_schema(d.schema_name, d.kind);
    perform penstock._grant_again(_rights);
end
$$;

-- Drop a schema and its row. A schema that belongs to somebody else by now is left alone.
create or replace function penstock._drop_compat_schema(_name text, _kind text, _flush boolean) returns void
language plpgsql as $$
declare
    d penstock.compat_schema;
begin
    perform penstock._follow_schemas();
    select * into d from penstock.compat_schema where schema_name = _name and kind = _kind order by schema_oid limit 1;
    if not found then
        raise exception using errcode = 'PN300',
            message = format('there is no %s schema %L', _kind, _name),
            hint = 'penstock.compat_schema lists the schemas that were made here.';
    end if;
    if penstock._is_bound(d)
        and (select penstock._is_trusted(n.nspowner) from pg_namespace as n where n.oid = d.schema_oid) then
        execute format('drop schema %I cascade', _name);
    else
        raise warning using message = format('schema %I was not dropped, only forgotten', _name),
            hint = 'It belongs to somebody else, or this database is a copy in which `penstock migrate` has not run.';
    end if;
    perform penstock._unschedule_compat_jobs(d.schema_id);
    perform penstock._finish_held_removals(d.queue_id, penstock.now_us());
    delete from penstock.compat_schema where schema_id = d.schema_id;
    perform penstock._clean_public(_kind);
    perform penstock._set_compat_notify(d.queue_id);
    if _flush then
        perform penstock.flush((select name from penstock.queue where queue_id = d.queue_id));
    end if;
end
$$;

-- Set whether sends to a queue and dead letters in it are notified on the channels of the LISTEN/NOTIFY convention.
create or replace function penstock._set_compat_notify(_queue_id integer) returns void
language sql as $$
    update penstock.queue
    set announces = exists (select 1 from penstock.compat_schema where queue_id = _queue_id and kind = 'message')
    where queue_id = _queue_id
$$;

-- The queue of a compatibility schema, and the group of its calls.
create or replace function penstock._compat_target(
    _schema_id integer, out queue_id integer, out queue text, out "group" text, out group_id integer
)
language plpgsql stable as $$
#variable_conflict use_column
begin
    select q.queue_id, q.name, penstock._default_group(q), g.group_id into queue_id, queue, "group", group_id
    from penstock.compat_schema as d
    join penstock.queue as q on q.queue_id = d.queue_id
    left join penstock.group as g on g.queue_id = q.queue_id and g.name = penstock._default_group(q)
    where d.schema_id = _schema_id;
    if not found then
        raise exception using errcode = 'PN300',
            message = format('schema number %s is not known any more', _schema_id),
            hint = 'Its row in penstock.compat_schema was removed: drop the schema and make it again.';
    end if;
end
$$;

-- A payload as JSON. Other content is wrapped in an envelope, so that it is recognised and can be restored.
create or replace function penstock.payload_json(_payload bytea, _content_type text) returns json
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return convert_from(_payload, 'UTF8')::json;
exception when data_exception or program_limit_exceeded then
    return json_build_object(
        'content_type', coalesce(_content_type, 'application/octet-stream'),
        'base64', translate(encode(_payload, 'base64'), E'\n', '')
    );
end
$$;

-- A payload as jsonb, which cannot contain NUL characters.
create or replace function penstock.payload_jsonb(_payload bytea, _content_type text) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return convert_from(_payload, 'UTF8')::jsonb;
exception when data_exception or program_limit_exceeded then
    return jsonb_build_object(
        'content_type', coalesce(_content_type, 'application/octet-stream'),
        'base64', translate(encode(_payload, 'base64'), E'\n', '')
    );
end
$$;
