-- The schema of the LISTEN/NOTIFY convention: the tables message and message_archive, as views that write to the log.

create or replace function penstock._write_message_schema(_name text, _schema_id integer) returns void
language plpgsql as $outer$
begin
    execute format($text$
        -- The subquery makes `select for update`, which some workers run before they lock, lock no table of Penstock.
        create or replace view %1$I.message with (security_barrier) as
        with live as not materialized (select * from penstock.compat_message where schema_id = %2$L)
        select id, created_at::timestamp as created_at, message, lock_expires_at::timestamp as lock_expires_at from live;

        create or replace view %1$I.message_archive with (security_barrier) as
        select id, created_at::timestamp as created_at, archived_at::timestamp as archived_at, message,
            result::text::%3$I.message_status as result, handled_by, details
        from penstock.compat_archive where schema_id = %2$L;

        create or replace trigger send instead of insert on %1$I.message
        for each row execute function penstock._message_insert(%2$L);
        create or replace trigger lock instead of update on %1$I.message
        for each row execute function penstock._message_update(%2$L);
        create or replace trigger remove instead of delete on %1$I.message
        for each row execute function penstock._message_delete(%2$L);

        create or replace trigger settle instead of insert on %1$I.message_archive
        for each row execute function penstock._archive_insert(%2$L);
        create or replace trigger purge instead of delete on %1$I.message_archive
        for each row execute function penstock._archive_delete(%2$L);
        create or replace trigger clear after delete on %1$I.message_archive
        for each statement execute function penstock._archive_clear(%2$L);
        create or replace trigger refuse instead of update on %1$I.message_archive
        for each row execute function penstock._refuse('How a message ended never changes; redrive sends it again.');
    $text$, _name, _schema_id, penstock._status_schema(_name));
end
$outer$;
