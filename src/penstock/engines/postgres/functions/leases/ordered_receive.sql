-- ready -> leased in ordered queues, which have one open lease per shard.

-- Receive from an ordered queue, which has one open lease per shard, in order of priority and position. Retries precede
-- what was never handed out, whatever its priority, and their shard waits for the first of them. Messages handed out behind a failure are released, which at_most_once forbids: there one at a time. A
-- shard that another transaction reads is skipped; if there was nothing else, the first of them is waited for briefly.
create or replace function penstock._receive_in_order(
    r penstock.receive_call, q penstock.queue, g penstock.group, _waits boolean default true
) returns setof penstock.delivery_row
language plpgsql as $$
declare
    _most integer := case when q.delivery = 'at_most_once' then 1 else r.most end;
    _room integer := r.most;
    _taken integer;
    _blocked integer[] := '{}';
    _entered integer[] := '{}';
    _passed integer[] := '{}';
    _missed integer;
    _unread_at bigint;
    turn record;
    waiting penstock.tracked;
    delivery penstock.delivery_row;
begin
    -- Row by row: expired messages end, and each lease may end at its own time.
    r.has_skips := true;
    -- Of each priority the retries, the lanes with unread messages, and what this transaction has sent or promoted: the
    -- last of its shard. It is looked at again when the shard is locked.
    for turn in
        select turns.* from (
            select t.priority, 'retry' as kind, 0 as rank, t.position as place, n.shard, t.position, n.lane_id
            from penstock.tracked as t join penstock.lane as n using (lane_id)
            where t.group_id = g.group_id and t.state in ('held', 'ready')
            union all
            select n.priority, 'lane', 1, penstock._shard_turn(g.group_id, r.consumer, n.shard, q.shards), n.shard, null,
                n.lane_id
            from penstock.lane as n
            where n.queue_id = q.queue_id and n.priority >= 0
                and penstock._has_unread(g.group_id, n.lane_id, q.trimmed_position)
            union all
            select n.priority, 'own', 2, l.position, n.shard, l.position, n.lane_id
            from penstock.lane as n join penstock.log as l using (lane_id)
            where n.queue_id = q.queue_id and n.priority >= 0 and l.tx = r.own
        ) as turns
        order by turns.priority, turns.rank, turns.place
    loop
        exit when _room = 0;
        continue when turn.shard = any (_blocked);
        if turn.shard <> all (_entered) then
            if not pg_try_advisory_xact_lock(penstock._shard_key(g.group_id, turn.shard)) then
                _missed := coalesce(_missed, turn.shard);
                _blocked := _blocked || turn.shard;
                continue;
            end if;
            _entered := _entered || turn.shard;
            if turn.shard in (select penstock._busy_shards(g.group_id)) then
                _blocked := _blocked || turn.shard;
                continue;
            end if;
        end if;
        -- The first message in care of the shard: if it is ready it is the shard's turn, if not the shard waits.
        select t.* into waiting from penstock.tracked as t join penstock.lane as n using (lane_id)
        where t.group_id = g.group_id and t.state in ('held', 'ready') and n.shard = turn.shard
        order by t.priority, t.position limit 1;
        if turn.kind = 'retry' then
            continue when (waiting.position = turn.position and waiting.state = 'ready') is not true;
            return next penstock._lease_retry(r, waiting);
            _taken := 1;
        elsif turn.kind = 'own' then
            if waiting.position is not null then
                _passed := _passed || turn.shard;
            end if;
            continue when turn.shard = any (_passed);
            return query select * from penstock._receive_own(r, q, turn.priority, 1, turn.position);
            get diagnostics _taken = row_count;
        else
            if waiting.position is not null then
                _unread_at := penstock._next_unread_position(q, g, turn.lane_id);
                -- A message redriven before it was ever read waits further on: what comes before it is free.
                if (turn.priority <= waiting.priority and _unread_at < waiting.position) is not true then
                    if _unread_at is not null then
                        _passed := _passed || turn.shard;
                    end if;
                    continue;
                end if;
            elsif turn.shard = any (_passed) then
                continue; -- what a better priority has waits for the retries, and must not be overtaken meanwhile
            end if;
            -- The shard is locked, so only a transaction that has just ended can have the lane: a server releases its locks
            -- one by one. What a worse priority has must not be taken instead.
            if not penstock._lock_soon(penstock._lane_key(g.group_id, turn.lane_id)) then
                _blocked := _blocked || turn.shard;
                continue;
            end if;
            -- The queue may have been deleted while this waited for the shard.
            continue when not exists (select 1 from penstock.queue where queue_id = q.queue_id);
            r.fresh := penstock._current_snapshot();
            _taken := 0;
            for delivery in
                select * from penstock._receive_from_lane(
                    r, q, g, penstock._get_cursor(g.group_id, turn.lane_id), turn.lane_id, turn.priority,
                    least(_room, case when waiting.position is null then _most else 1 end)
                )
            loop
                return next delivery;
                _taken := _taken + 1;
            end loop;
            if waiting.position is not null then
                _blocked := _blocked || turn.shard;
            end if;
        end if;
        _room := _room - _taken;
        if _most = 1 and _taken > 0 then
            _blocked := _blocked || turn.shard;
        end if;
    end loop;
    if _room = r.most and _waits and _missed is not null
        and penstock._wait_for_lock(penstock._shard_key(g.group_id, _missed), '100ms') then
        return query select * from penstock._receive_in_order(r, q, g, false);
    end if;
end
$$;

-- Acquire a lock that is free, or about to be.
create or replace function penstock._lock_soon(_key bigint) returns boolean
language sql volatile as $$
    select pg_try_advisory_xact_lock(_key) or penstock._wait_for_lock(_key, '100ms')
$$;

-- Shards of an ordered queue with messages in flight.
create or replace function penstock._busy_shards(_group_id integer) returns setof integer
language sql stable as $$
    select n.shard from penstock.lease as e join penstock.lane as n using (lane_id) where e.group_id = _group_id
    union
    select n.shard from penstock.tracked as t join penstock.lane as n using (lane_id)
    where t.group_id = _group_id and t.state = 'leased'
$$;
