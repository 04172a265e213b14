-- Inserts into and deletes from the table message_archive of the LISTEN/NOTIFY convention.

-- insert into message_archive: end a message that is locked, or that was deleted in this transaction or shortly before. Until the message
-- has ended the worker's result counts, even after its lock: nobody else can have leased the message, and "the lock
-- expired" is one of the results that the worker itself may write.
create or replace function penstock._archive_insert() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _schema_id integer := tg_argv[0];
    b record := penstock._compat_target(_schema_id);
    live penstock.compat_live;
    ended record;
begin
    if new.result is null or new.handled_by is null then
        raise exception using errcode = 'not_null_violation',
            message = format('result and handled_by of %I.message_archive cannot be null', tg_table_schema),
            hint = 'result is success, rejected, failed or lock_expired.';
    end if;
    live := penstock._message_of_archive_row(_schema_id, b.queue_id, new.id, new.created_at::timestamp, new.message);
    if live.position is not null then
        delete from penstock.compat_removal where schema_id = _schema_id and position = live.position;
        if penstock._message_end(
            b.queue_id, live, new.result::text::penstock.message_status, new.handled_by, new.details
        ) then
            new.id := live.position;
            new.created_at := penstock.to_time(live.created_at);
            new.archived_at := penstock.to_time(penstock.now_us());
            return new;
        end if;
    end if;
    perform penstock._check_isolation('an archive row whose message is not found locked');
    select * into ended
    from penstock._expired_message(b.group_id, new.id, new.created_at::timestamp, new.message) as e;
    if new.result = 'success' or ended.id is null then
        raise exception using errcode = 'PN201',
            message = format('no message of %I.message is locked that this archive row could be of', tg_table_schema),
            hint = 'A lock that ended is the end of the message: the sweep has archived it as lock_expired. A message that '
                'was deleted without an archive row is archived as success after a minute.';
    end if;
    -- The sweep ended the message before the worker did: return the existing row.
    new.id := ended.id;
    new.created_at := penstock.to_time(ended.created_at);
    new.archived_at := penstock.to_time(ended.died_at);
    new.result := 'lock_expired';
    new.handled_by := ended.handled_by;
    new.details := ended.details;
    return new;
end
$$;

-- The message of an archive row: one that this transaction deleted, or that was deleted shortly before, or else one that
-- is locked. A transaction that deleted a single message can only archive that one, whatever the row says.
create or replace function penstock._message_of_archive_row(
    _schema_id integer, _queue_id integer, _id bigint, _created_at timestamp, _message jsonb
) returns penstock.compat_live
language plpgsql stable as $$
declare
    live penstock.compat_live;
    _own bigint[];
begin
    select l.* into live
    from penstock.compat_removal as r
    cross join lateral penstock._compat_find_at(_queue_id, r.position) as l
    where r.schema_id = _schema_id
        and (r.removed_at is null or r.position = _id or penstock._is_same_time(r.created_at, _created_at))
        and penstock._is_archive_row_of(l, _id, _created_at, _message)
    order by r.removed_at nulls first, penstock.to_time(l.created_at)::timestamp <> _created_at, r.position
    limit 1;
    if not found then
        select l.* into live
        from penstock.compat_live as l
        where l.queue_id = _queue_id and l.state = 'leased' and penstock._is_archive_row_of(l, _id, _created_at, _message)
        order by penstock.to_time(l.created_at)::timestamp <> _created_at, l.position
        limit 1;
    end if;
    if not found and _id is null then
        select array_agg(position) into _own
        from penstock.compat_removal where schema_id = _schema_id and removed_at is null;
        if cardinality(_own) = 1 then
            live := penstock._compat_find_at(_queue_id, _own[1]);
        end if;
    end if;
    return live;
end
$$;

-- Whether a time in microseconds is that of a session: some clients have times in milliseconds only.
create or replace function penstock._is_same_time(_at bigint, _time timestamp) returns boolean
language sql stable as $$
    select penstock.to_time(_at)::timestamp - _time between interval '-0.001' second and interval '0.001' second
$$;

-- Whether an archive row belongs to a message: by its id, or else by its time and payload.
create or replace function penstock._is_archive_row_of(
    live penstock.compat_live, _id bigint, _created_at timestamp, _message jsonb
) returns boolean
language sql stable as $$
    select case
        when _id is not null then live.position = _id
        else penstock._is_same_time(live.created_at, _created_at)
            and penstock.payload_jsonb(live.payload, live.content_type) = _message
    end
$$;

-- The message of an archive row that the sweep has ended with its lock. Found by its time along an index; the session's
-- time zone may have had that hour twice, so an hour around it is searched.
create or replace function penstock._expired_message(
    _group_id integer, _id bigint, _created_at timestamp, _message jsonb,
    out id bigint, out created_at bigint, out died_at bigint, out handled_by text, out details text
)
language sql stable as $$
    select d.position, d.created_at, d.died_at, coalesce(s.by, 'system'), d.reason
    from penstock.dead_letter as d
    left join lateral (
        select s.by from penstock.audit as s
        where s.queue_id = d.queue_id and s.last >= d.position and s.first <= d.position and s.state = d.outcome
            and (s.positions is null or s.positions @> d.position)
        order by s.entry desc
        limit 1
    ) as s on true
    where d.group_id = _group_id and d.outcome = 'lease_expired' and case
            when _id is not null then d.position = _id
            else abs(extract(epoch from penstock.to_time(d.created_at)::timestamp - _created_at)) <= 0.001
                and penstock.payload_jsonb(d.payload, d.content_type) = _message
        end
        and (_id is not null or d.created_at between penstock.from_time(_created_at::timestamptz - interval '2 hours')
            and penstock.from_time(_created_at::timestamptz + interval '2 hours'))
    order by d.position desc
    limit 1
$$;

-- live -> the outcome of a result; false when the message has ended meanwhile or cannot be leased.
create or replace function penstock._message_end(
    _queue_id integer, live penstock.compat_live, _result penstock.message_status, _by text, _details text
) returns boolean
language plpgsql as $$
begin
    if live.state <> 'leased' then
        live.token := penstock._compat_lease(_queue_id, live.position, _by, 60);
    end if;
    return live.token is not null and penstock._compat_settle(
        _queue_id, live,
        case _result
            when 'success' then 'ack'
            when 'rejected' then 'reject'
            when 'failed' then 'failed'
            else 'lease_expired'
        end,
        _by, _details, _also_late => true
    );
end
$$;

-- delete from message_archive: record the row, which is removed with the others at the end of the statement.
create or replace function penstock._archive_delete() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into penstock.compat_clearing (schema_id, position) values (tg_argv[0]::integer, old.id) on conflict do nothing;
    return old;
end
$$;

-- Remove the messages that a statement has deleted from message_archive: dead letters, succeeded messages, and messages that this
-- transaction deleted from the table message without an archive row. What another group has not finished stays.
create or replace function penstock._archive_clear() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _schema_id integer := tg_argv[0];
    b record := penstock._compat_target(_schema_id);
    q penstock.queue;
    _positions bigint[];
begin
    with noted as (
        delete from penstock.compat_clearing where schema_id = _schema_id returning position
    ),
    letters as (
        delete from penstock.dead_letter where group_id = b.group_id and position in (select position from noted) returning position
    )
    select array_agg(position) into _positions from (select position from noted except select position from letters) as others;
    if _positions is null then
        return null;
    end if;
    select * into q from penstock.queue where queue_id = b.queue_id;
    perform penstock._check_finished(q, b.group_id, _positions);
    delete from penstock.compat_removal where schema_id = _schema_id and position = any (_positions);
    delete from penstock.compat_note as n using penstock.compat_schema as d
    where d.queue_id = q.queue_id and n.schema_id = d.schema_id and n.message_id in (
        select coalesce(m.id, penstock.made_id(m.created_at, m.position)) from penstock.log as m where m.position = any (_positions)
    );
    perform penstock._delete_trimmed_messages(penstock._lock_queue(q), _positions, false, penstock.now_us());
    return null;
end
$$;

-- Refuse to remove messages that another group has not finished.
create or replace function penstock._check_finished(q penstock.queue, _group_id integer, _positions bigint[]) returns void
language plpgsql as $$
declare
    g penstock.group;
    _first bigint;
begin
    for g in select * from penstock.group where queue_id = q.queue_id and group_id <> _group_id order by group_id loop
        _first := penstock._first_unfinished_position(q, g);
        if exists (select 1 from unnest(_positions) as one where one >= _first) then
            raise exception using errcode = 'PN200',
                message = format(
                    'messages of queue %s from %s on are not finished in group %s', penstock._quote_value(q.name), _first,
                    penstock._quote_value(g.name)
                ),
                hint = 'Nothing was removed. penstock.remove and penstock.flush remove messages from all groups.';
        end if;
    end loop;
end
$$;
