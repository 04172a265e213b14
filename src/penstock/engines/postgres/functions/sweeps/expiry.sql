-- live -> expired, for messages that no group has read.

-- Expire unread messages in all groups.
create or replace function penstock._expire_all_unread(q penstock.queue, _now bigint) returns bigint
language sql as $$
    select coalesce(sum(penstock._expire_unread(q, g, _now)), 0)::bigint
    from penstock.group as g where g.queue_id = q.queue_id and g.stream_mark is null
$$;

-- Expire messages that a group has not read and whose time has passed since the last sweep. The lanes are locked only
-- when there are any, so that nobody hands them out meanwhile.
create or replace function penstock._expire_unread(q penstock.queue, g penstock.group, _now bigint) returns integer
language plpgsql as $$
declare
    over record;
    m penstock.log;
    _count integer := 0;
    _is_primary boolean := g.name is not distinct from q.primary_group;
begin
    if exists (select 1 from penstock._overdue_messages(q, g, _now)) then
        if not penstock._try_lock_lanes(q, g.group_id) then
            -- Somebody receives: the next sweep looks again.
            return 0;
        end if;
        -- Where the log begins may have been moved while this one waited.
        select * into q from penstock.queue where queue_id = q.queue_id;
        for over in select * from penstock._overdue_messages(q, g, _now) as one order by one.position loop
            select * into m from penstock.log where position = over.position and lane_id = over.lane_id;
            insert into penstock.skip (group_id, position) values (g.group_id, over.position);
            perform penstock._end_message(
                q, g, penstock._log_row(m, over.priority, null, null), over.event, 'expired', 'system', null, 0, null,
                _is_primary, _now
            );
            _count := _count + 1;
        end loop;
    end if;
    -- Not written down by every sweep: looking again at the last minute is cheaper than a commit.
    if _count > 0 or _now - g.expired_upto > 60000000 then
        -- Another transaction may hold the row for long; then the next sweep writes it down.
        update penstock.group set expired_upto = _now where group_id = (
            select group_id from penstock.group where group_id = g.group_id for update skip locked
        );
    end if;
    return _count;
end
$$;

create or replace function penstock._overdue_messages(q penstock.queue, g penstock.group, _now bigint)
returns table ("position" bigint, lane_id integer, priority integer, event text)
language sql stable rows 10 as $$
    select m.position, m.lane_id, n.priority, case when m.expires_at <= _now then 'expire' else 'deadline' end
    from (
        select * from penstock.log where expires_at > g.expired_upto and expires_at <= _now
        union all
        select * from penstock.log
        where q.delivery = 'at_most_once' and deadline_at > g.expired_upto and deadline_at <= _now
            and (expires_at is null or expires_at > _now or expires_at <= g.expired_upto)
    ) as m
    join penstock.lane as n using (lane_id)
    where n.queue_id = q.queue_id and n.priority >= 0
        and not penstock._is_behind_cursor(
            penstock._get_cursor(g.group_id, m.lane_id), m.tx, m.position, q.trimmed_position
        )
        and not exists (select 1 from penstock.skip as s where s.group_id = g.group_id and s.position = m.position)
$$;

-- Make the next sweep look back to a time: messages came into view whose time had passed before the last one.
create or replace function penstock._widen_expiry(_queue_id integer, _group_id integer, _since bigint) returns void
language sql as $$
    update penstock.group set expired_upto = _since
    where queue_id = _queue_id and (_group_id is null or group_id = _group_id) and expired_upto > _since
$$;
