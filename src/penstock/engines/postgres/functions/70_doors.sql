-- Schemas with the calls of other queues' conventions: how they are made, renewed and removed. A name is only ever an
-- identifier made by format with %I; what is written into a function's text is the schema's number.

-- A schema in which the calls of the stored-procedure conventions work on a queue, by default the one of its own name.
-- A new queue gets the conventions' settings; one that exists keeps its policy.
create or replace function penstock.create_queue_schema(name text, queue text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _door integer;
begin
    _door := penstock._open_door(name, 'queue', coalesce(queue, name), (
        select jsonb_object_agg(k.field, k.first_value::numeric * k.scale)
        from penstock.door_setting_kind k
        where k.field is not null));
    insert into penstock.door_setting (door_id, setting_name, setting_value)
    select _door, k.setting_name, case when k.field is null then k.first_value end
    from penstock.door_setting_kind k;
    perform penstock._furnish(_door);
end
$$;

-- A schema with the tables message and message_archive of the LISTEN/NOTIFY conventions, on the queue of its own name
-- or another. A new queue delivers at most once, because there a lock that ends is the end of the message.
create or replace function penstock.create_message_schema(name text, queue text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _door integer;
begin
    _door := penstock._open_door(name, 'message', coalesce(queue, name), jsonb_build_object(
        'delivery', 'at_most_once', 'lease_seconds', 60, 'history_seconds', 91 * 86400));
    perform penstock._furnish(_door);
end
$$;

-- Removes such a schema. The queue and its messages stay, unless they are to be flushed as well.
create or replace function penstock.drop_queue_schema(name text, flush boolean default false) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock._close_door(name, 'queue', flush);
end
$$;

-- The same for a schema of the LISTEN/NOTIFY conventions.
create or replace function penstock.drop_message_schema(name text, flush boolean default false) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform penstock._close_door(name, 'message', flush);
end
$$;

-- Makes the schema and its row, and the queue where it is new.
create or replace function penstock._open_door(_name text, _kind text, _queue text, _policy jsonb) returns integer
language plpgsql as $$
declare
    _door integer;
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
    insert into penstock.door (schema_name, schema_oid, home, kind, queue_id)
    select n.nspname, n.oid, penstock._home(), _kind, q.queue_id
    from penstock.queue as q, pg_namespace as n
    where q.name = _queue and n.nspname = _name
    returning door_id into _door;
    return _door;
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
            message = format('schema name %s has %s bytes', penstock._shown(_name), octet_length(_name)),
            hint = 'Names in PostgreSQL have at most 63 bytes. The second argument names a queue of up to 255.';
    elsif _name ~ '^pg_' or _name in ('penstock', 'information_schema') then
        raise exception using errcode = 'PN101',
            message = format('schema name %L is taken', _name),
            hint = 'Names that begin with pg_ belong to PostgreSQL, and penstock to Penstock.';
    end if;
end
$$;

-- Writes the functions and views of a schema, or writes them again after an upgrade.
create or replace function penstock._furnish(_door integer) returns void
language plpgsql as $$
declare
    d penstock.door;
begin
    select * into strict d from penstock.door where door_id = _door;
    perform penstock._check_schema(d);
    if d.kind = 'queue' then
        perform penstock._furnish_queue(d.schema_name, _door);
        perform penstock._schedule_door(_door);
    else
        perform penstock._furnish_message(d.schema_name, _door);
    end if;
    perform penstock._set_announcing(d.queue_id);
    perform penstock._grant_door(d.schema_name, d.kind);
end
$$;

-- The row goes with the schema. A schema that is somebody else's by now is left alone.
create or replace function penstock._close_door(_name text, _kind text, _flush boolean) returns void
language plpgsql as $$
declare
    d penstock.door;
begin
    perform penstock._follow_schemas();
    select * into d from penstock.door where schema_name = _name and kind = _kind order by schema_oid limit 1;
    if not found then
        raise exception using errcode = 'PN300',
            message = format('there is no %s schema %L', _kind, _name),
            hint = 'penstock.door lists the schemas that were made here.';
    end if;
    if penstock._is_bound(d) and penstock._owner_is_trusted(d.schema_oid) then
        execute format('drop schema %I cascade', _name);
    else
        raise warning using message = format('schema %I was not dropped, only forgotten', _name),
            hint = 'It belongs to somebody else, or this database is a copy in which `penstock migrate` has not run.';
    end if;
    perform penstock._unschedule_door(d.door_id);
    delete from penstock.door where door_id = d.door_id;
    perform penstock._set_announcing(d.queue_id);
    if _flush then
        perform penstock.flush((select name from penstock.queue where queue_id = d.queue_id));
    end if;
end
$$;

-- Whether sends to a queue and deaths in it are told on the channels of the LISTEN/NOTIFY conventions.
create or replace function penstock._set_announcing(_queue_id integer) returns void
language sql as $$
    update penstock.queue
    set announces = exists (select 1 from penstock.door where queue_id = _queue_id and kind = 'message')
    where queue_id = _queue_id
$$;

-- The queue behind a schema, and the group that its calls act for.
create or replace function penstock._behind(
    _door integer, out queue_id integer, out queue text, out "group" text, out group_id integer
)
language plpgsql stable as $$
#variable_conflict use_column
begin
    select q.queue_id, q.name, penstock._default_group(q), g.group_id into queue_id, queue, "group", group_id
    from penstock.door as d
    join penstock.queue as q on q.queue_id = d.queue_id
    left join penstock.reader as g on g.queue_id = q.queue_id and g.name = penstock._default_group(q)
    where d.door_id = _door;
    if not found then
        raise exception using errcode = 'PN300',
            message = format('schema number %s is not known any more', _door),
            hint = 'Its row in penstock.door was removed: drop the schema and make it again.';
    end if;
end
$$;

-- A payload as JSON. What is not JSON goes into an envelope, so that it can be told and undone.
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

-- The same as jsonb, which takes a little less than json: no NUL characters.
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
