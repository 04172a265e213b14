-- Tables, columns, views and functions get the words of the glossary. Only names change: no row is copied or rewritten.

-- Functions are made anew after the migrations. Internal ones, and those whose parameters or columns are renamed, would
-- stand in their way; triggers and views that users built on one keep it.
drop trigger if exists note_new_letters on penstock.dead_letter;
drop trigger if exists note_gone_letters on penstock.dead_letter;
do $$
declare
    one record;
begin
    for one in
        select p.oid::regprocedure as name from pg_proc as p
        where p.pronamespace = 'penstock'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
            and (starts_with(p.proname, '_') or p.proname in (
                'append', 'browse', 'check_part', 'ended_messages', 'find', 'keep_traces', 'leases', 'next_messages', 'parts',
                'places', 'ready_messages', 'put', 'take', 'take_over', 'letters', 'trail', 'take_place', 'take_positions',
                'begin_pledge', 'end_pledge', 'withdraw_pledge', 'decided_pledges', 'forget_pledges'
            ))
    loop
        begin
            execute format('drop function if exists %s', one.name);
        exception when dependent_objects_still_exist then
            null;
        end;
    end loop;
end
$$;
drop function if exists penstock._note_letters();

-- Earlier signatures of functions that keep their names.
drop function if exists penstock.settle(text, text, text[], bigint[], bigint[], text[], double precision[]);
drop function if exists penstock.settle(text, text, text[], bigint[], bigint[], text[], double precision[], text[]);
drop function if exists penstock.stats(text);
drop function if exists penstock.ended(text, uuid);
drop function if exists penstock.batch_members(text, text, bigint, bigint, integer, bigint);
drop function if exists penstock.nak(text, uuid, bigint, text, double precision, text);
drop function if exists penstock.reject(text, uuid, bigint, text, text);
drop function if exists penstock.send(
    text, jsonb, integer, double precision, double precision, timestamptz, text, text, jsonb, uuid, text, text
);
drop function if exists penstock.send_bytes(
    text, bytea, text, integer, double precision, double precision, timestamptz, text, text, jsonb, uuid, text, text
);
drop function if exists penstock.consumers(text);
drop function if exists penstock.register(text, text, text, double precision);
drop function if exists penstock.heartbeat(text, text, text);
drop function if exists penstock.batch_open(text, text, jsonb, jsonb);
drop function if exists penstock.batch_open(text, text, jsonb, jsonb, bigint);
drop function if exists penstock.batch_start(text, text);
drop function if exists penstock.batch_start(text, text, bigint);
drop function if exists penstock.batch_cancel(text, text);
drop function if exists penstock.batch_cancel(text, text, bigint);

alter table penstock.reader rename to "group";
alter table penstock.claim rename to cursor;
alter table penstock.step rename to audit;
alter table penstock.careful rename to checked_lane;
alter table penstock.member rename to batch_member;
alter table penstock.joining rename to batch_join;
alter table penstock.pledge rename to prepared_write;
alter table penstock.moment rename to decided_position;
alter table penstock.door rename to compat_schema;
alter type penstock.flight rename to message_row;

-- What the compatibility schemas are made of: tables, and views on which the views of those schemas depend.
do $$
declare
    one record;
begin
    for one in
        select c.oid::regclass as name, 'compat' || substr(c.relname, 5) as new from pg_class as c
        where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'v') and starts_with(c.relname, 'door_')
    loop
        execute format('alter table %s rename to %I', one.name, one.new);
    end loop;
    for one in
        select c.oid::regclass as name, c.relkind, a.attname as old, renamed.new
        from (values
            ('seq', 'position'), ('at_seq', 'at_position'), ('again_seq', 'again_position'),
            ('first_seq', 'first_position'), ('last_seq', 'last_position'), ('door_id', 'schema_id')
        ) as renamed (old, new)
        join pg_attribute as a on a.attname = renamed.old and not a.attisdropped
        join pg_class as c on c.oid = a.attrelid
        where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'v', 'c')
    loop
        if one.relkind = 'c' then
            execute format('alter type %s rename attribute %I to %I', one.name, one.old, one.new);
        else
            execute format('alter table %s rename column %I to %I', one.name, one.old, one.new);
        end if;
    end loop;
    for one in
        select c.oid::regclass as name, renamed.new || substr(c.relname, length(renamed.old) + 1) as new
        from (values
            ('reader_', 'group_'), ('claim_', 'cursor_'), ('step_', 'audit_'), ('careful_', 'checked_lane_'),
            ('member_', 'batch_member_'), ('joining_', 'batch_join_'), ('pledge_', 'prepared_write_'), ('door_', 'compat_'),
            ('log_seq', 'log_position'), ('identity_seq', 'identity_position'), ('address_seq', 'address_position')
        ) as renamed (old, new)
        join pg_class as c on starts_with(c.relname, renamed.old)
        where c.relnamespace = 'penstock'::regnamespace and c.relkind = 'i'
    loop
        execute format('alter index %s rename to %I', one.name, one.new);
    end loop;
end
$$;
