-- ready -> leased, row by row: for lanes whose messages may have expired or belong to a batch.

-- Lease unread messages row by row: expired ones are ended and recorded, and leases may end at different times.
create or replace function penstock._receive_checked(
    r penstock.receive_call, q penstock.queue, g penstock.group, c penstock.cursor, _lane_id integer, _priority integer,
    _room integer
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    m penstock.log;
    msg penstock.message_row;
    _ends_at bigint := r.now + penstock._microseconds(r.lease_seconds);
    _ends bigint;
    _positions bigint[] := '{}';
    _count integer := 0;
    _passed integer := 0;
    _over text;
begin
    c.used_up := true;
    for m in select * from penstock._window_messages(_lane_id, c, r.trimmed_position) loop
        if _count = _room then
            c.used_up := false;
            exit;
        end if;
        _passed := _passed + 1;
        c.at_tx := m.tx;
        c.at_position := m.position;
        delete from penstock.skip where group_id = g.group_id and position = m.position;
        continue when found;
        msg := penstock._log_row(m, _priority, r.token, r.consumer);
        _over := penstock._expiry_event(q, m.expires_at, m.deadline_at, m.batch_id, r.now);
        if _over is not null then
            perform penstock._end_message(
                q, g, msg, _over, case _over when 'batch_cancel' then 'cancelled' else 'expired' end, 'system', null, 0,
                null, g.name is not distinct from q.primary_group, r.now
            );
            continue;
        end if;
        _count := _count + 1;
        _ends := penstock._lease_end(r.now, r.lease_seconds, m.expires_at, m.deadline_at);
        if _ends = _ends_at then
            _positions := _positions || m.position;
        else
            perform penstock._track_message(g.group_id, msg, 'leased', 1, _ends, r.now);
            perform penstock._record_audit(
                q.queue_id, g.group_id, 'receive', 'leased', m.position, r.consumer, null, 1, r.token, penstock.now_us()
            );
        end if;
        return next row (
            m.position, m.created_at, m.id::text, m.content_type, m.headers, m.expires_at, m.deadline_at, m.address, m.key,
            (select b.name from penstock.batch as b where b.batch_id = m.batch_id), m.created_by, m.payload, _priority,
            1, _ends
        )::penstock.delivery_row;
    end loop;
    if _passed > 0 then
        perform penstock._move_cursor(
            g.group_id, _lane_id, c, _passed, _positions, r.consumer, r.token, _ends_at, r.now
        );
    end if;
end
$$;

-- The event that has ended an unread message but was not recorded yet; null while it is live. A message of a cancelled
-- batch has ended in every group, including later ones.
create or replace function penstock._expiry_event(
    q penstock.queue, _expires_at bigint, _deadline_at bigint, _batch_id bigint, _now bigint
) returns text
language sql stable as $$
    select case
        when _expires_at <= _now then 'expire'
        when q.delivery = 'at_most_once' and _deadline_at <= _now then 'deadline'
        when _batch_id is not null and (
            select b.state in ('cancelling', 'cancelled') from penstock.batch as b where b.batch_id = _batch_id
        ) then 'batch_cancel'
    end
$$;

-- The position of the next message of a lane that a group has not read and that has not ended in it.
create or replace function penstock._next_unread_position(q penstock.queue, g penstock.group, _lane_id integer) returns bigint
language sql stable as $$
    select m.position
    from penstock._unread_messages(
        _lane_id, penstock._get_cursor(g.group_id, _lane_id), q.trimmed_position, 100
    ) as m
    where not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.position = m.position)
    limit 1
$$;
