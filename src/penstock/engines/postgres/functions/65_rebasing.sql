-- A dump that was restored into another cluster has the transaction numbers of the first one.

-- Give every message a transaction number that is past everywhere, and put the cursors where they were: behind all
-- messages up to the first unread one, passing over those beyond it that were read. True when there was something to do.
create or replace function penstock._rebase() returns boolean
language plpgsql as $$
declare
    _identifier bigint := (select system_identifier from pg_control_system());
    _past constant xid8 := '2';
    _snap constant pg_snapshot := '3:3:';
    q penstock.queue;
    g penstock.reader;
    n penstock.lane;
    c penstock.claim;
    _first bigint;
    _now bigint := penstock.now_us();
begin
    if exists (select 1 from penstock.store where system_identifier = _identifier) then
        return false;
    end if;
    update penstock.lane as l set sent = penstock._sent(l), last = penstock._lane_end(l);
    update penstock.reader as r
    set (succeeded, rejected, failed, lease_expired, expired, cancelled) = (select * from penstock._ended(r));
    for q in select * from penstock.queue loop
        for g in select * from penstock.reader where queue_id = q.queue_id loop
            for n in select * from penstock.lane where queue_id = q.queue_id and priority >= 0 loop
                if g.stream_mark is not null then
                    c := penstock._mark_cursor(g.stream_mark);
                else
                    c := penstock._cursor(g.group_id, n.lane_id, penstock._segment());
                    continue when c.number = 0;
                end if;
                select min(m.seq) into _first from penstock.log as m
                where m.lane_id = n.lane_id and m.seq > q.trimmed_position
                    and not penstock._is_read(c, m.tx, m.seq, q.trimmed_position);
                if g.stream_mark is not null then
                    update penstock.reader
                    set stream_mark = case when _first is null then penstock._mark(_snap)
                        else format('1:1:/%s/0/0/%s/f', _snap, _first - 1) end
                    where group_id = g.group_id;
                    continue;
                end if;
                if _first is not null then
                    insert into penstock.skip (group_id, seq)
                    select g.group_id, m.seq from penstock.log as m
                    where m.lane_id = n.lane_id and m.seq > _first
                        and penstock._is_read(c, m.tx, m.seq, q.trimmed_position)
                    on conflict do nothing;
                end if;
                c.prev := '1:1:';
                c.snap := _snap;
                c.used_up := _first is null;
                c.at_tx := '0';
                c.at_seq := 0;
                c.above := coalesce(_first - 1, 0);
                -- What is passed over later is counted as read then.
                select n.trimmed + count(*) into c.passed from penstock.log as m
                where m.lane_id = n.lane_id and m.seq > q.trimmed_position and (_first is null or m.seq < _first);
                perform penstock._claim(q, g, n.lane_id, c, 0, '{}', null, c.token, 0, _now, penstock._segment());
            end loop;
        end loop;
    end loop;
    update penstock.log set tx = _past;
    update penstock.claim set tx = _past;
    update penstock.step set tx = _past;
    update penstock.lane set counted = _snap;
    update penstock.reader set counted = _snap;
    update penstock.segment set sealed = '3' where sealed > '0';
    delete from penstock.moment;
    update penstock.store set system_identifier = _identifier, epoch = (random() * 4611686018427387903)::bigint;
    return true;
end
$$;
