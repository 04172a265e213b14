-- A statement that only calls a function has the name of the function, where it is described.

select * from penstock.batch_start(%s, %s);
select * from penstock.batch_cancel(%s, %s);
select * from penstock.lost_messages();
select * from penstock.lost_entries();
select penstock.recover_lost(%s, %s);

-- name: leaked_locks
-- Idle sessions that hold the lock by which senders find out whether anybody listens: a sender has it for a moment only. The
-- first key is that of earlier versions.
select l.pid, extract(epoch from clock_timestamp() - a.state_change)::double precision
from pg_locks as l
join pg_stat_activity as a using (pid)
where l.locktype = 'advisory' and l.granted and l.mode = 'ExclusiveLock' and a.datname = current_database()
    and l.database = a.datid and a.state like 'idle%' and a.state_change < clock_timestamp() - interval '1 second'
    and (
        (l.objsubid = 2 and l.classid = 1347310675 and l.objid = 0)
        or (l.objsubid = 1 and (l.classid::bigint << 32 | l.objid::bigint) = 7305793389475492353)
    )
order by l.pid;

-- name: terminate
-- End a session.
select pg_terminate_backend(%s::integer);

-- name: late_sequences
-- Sequences that would assign a number again: the kind of number, the last one in use, and the last one assigned.
select one.* from (
    select 'position' as kind, greatest(
        (select m.position from penstock.log as m order by m.position desc limit 1), (select max(trimmed_position) from penstock.queue)
    ) as used, coalesce(pg_sequence_last_value('penstock.position'), 0) as given
    union all
    select 'entry', greatest(
        (
            select max(last.entry) from penstock.queue as q
            cross join lateral (
                select s.entry from penstock.audit as s where s.queue_id = q.queue_id order by s.tx desc limit 1
            ) as last
        ),
        (
            select max(last.entry) from penstock.lane as n
            cross join lateral (
                select c.entry from penstock.cursor as c where c.lane_id = n.lane_id and c.n > 0 order by c.tx desc limit 1
            ) as last
        )
    ), coalesce(pg_sequence_last_value('penstock.entry'), 0)
) as one
where one.used > one.given;

-- name: raise_sequence
-- Continue a sequence after a number.
select setval(('penstock.' || %s)::regclass, %s::bigint);

-- name: stranded_batches
-- Open batches with messages but no recent ones, where an earlier batch of the name had ended before.
select q.name, b.name, count(*)
from penstock.batch as b
join penstock.queue as q using (queue_id)
join penstock.held as h using (batch_id)
where b.state = 'open' and b.end_message is null and b.abort_message is null and exists (
    select 1 from penstock.batch as earlier
    where earlier.queue_id = b.queue_id and earlier.name = b.name and earlier.batch_id < b.batch_id
        and earlier.ended_at <= b.created_at
)
group by q.name, b.name
having max(h.created_at) <= penstock.now_us() - %s * 1000000::bigint
order by q.name, b.name;
