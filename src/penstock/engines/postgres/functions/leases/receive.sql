-- ready -> leased: a receive.

-- A receive with its queue, its group and, when the queue has only one, its lane. It is expanded into the statement of the
-- caller, as is _find_due_work: neither may be volatile or have settings of its own.
create or replace function penstock._find_receiver(
    _queue text, _group text, _consumer text, _limit integer, _lease_seconds double precision, _brief boolean
) returns setof penstock.receive_call
language sql stable as $$
    select u.queue_id, r.group_id, r.name, r.used_at, r.stream_mark, s.system_identifier::text, u.delivery, u.ordered,
        u.paused, u.shards, n.lanes, n.lane_id, n.priority, _consumer, _limit, coalesce(_lease_seconds, u.lease_seconds),
        _brief, u.trimmed_position, false, false, null::bigint, null::bigint, null::bigint, null::bigint,
        null::pg_snapshot, null::xid8
    from penstock.queue as u
    cross join penstock.store as s
    left join penstock.group as r
        on r.queue_id = u.queue_id and r.name = coalesce(_group, u.primary_group, 'default')
    cross join lateral (
        select count(*)::integer as lanes, min(two.lane_id) as lane_id, min(two.priority) as priority
        from (
            select l.lane_id, l.priority from penstock.lane as l where l.queue_id = u.queue_id and l.priority >= 0 limit 2
        ) as two
    ) as n
    where u.name = _queue
$$;

-- The state of a group for a receive: the cursor of the only lane, and whether anything is due or has lapsed. Leases that
-- ended before the last check are gone, but their rows may still lie in the index, in great numbers while a transaction is
-- held open: they are not visited again. The + 0 keeps the planner from the index by group, which has all of them.
create or replace function penstock._find_due_work(
    _queue_id integer, _group_id integer, _lane_id integer, _lanes integer, _consumer text, _now bigint
) returns table (
    cursor penstock.cursor, trimmed_position bigint, held boolean, checks boolean, tracked boolean, lapsed boolean,
    skips boolean, is_removed boolean, is_there boolean
)
language sql stable as $$
    select k.cursor, u.trimmed_position,
        exists (
            select 1 from penstock.held as h where h.queue_id = _queue_id and not h.waiting and h.available_at <= _now
        ),
        exists (select 1 from penstock.batch_check as b where b.queue_id = _queue_id),
        exists (select 1 from penstock.tracked as t where t.group_id = _group_id),
        exists (
            select 1 from penstock.lease as e
            where e.ends_at <= _now and e.ends_at > coalesce(k.checked_at, 0) - 50000 and e.group_id + 0 = _group_id
        ),
        exists (select 1 from penstock.skip as s where s.group_id = _group_id),
        exists (select 1 from penstock.removed_consumer as r where r.group_id = _group_id and r.name = _consumer),
        exists (select 1 from penstock.group as g where g.group_id = _group_id)
    from penstock.queue as u
    left join lateral (
        select c as cursor, c.checked_at from penstock.cursor as c
        where _lanes = 1 and c.group_id = _group_id and c.lane_id = _lane_id
        order by c.number desc limit 1
    ) as k on true
    where u.queue_id = _queue_id
$$;

-- Promote held messages, make retries ready and end lapsed leases before messages are handed out. Returns whether there
-- may be retries, the time up to which leases were checked, and a token that is greater than those of all retries.
create or replace function penstock._run_due_work(
    q penstock.queue, g penstock.group, _held boolean, _lapsed boolean, _checked_at bigint, _limit integer,
    _token bigint, _now bigint, out has_retries boolean, out checked_at bigint, out token bigint
)
language plpgsql as $$
begin
    if _held then
        perform penstock._promote_held(q, greatest(_limit, 1000), _now);
    end if;
    has_retries := penstock._run_due_retries(q, g, _limit, greatest(_limit, 1000), _lapsed, _now);
    checked_at := _now;
    if _lapsed then
        -- Some may be left, for the next receive.
        select coalesce(min(e.ends_at), _now) into checked_at
        from penstock.lease as e
        where e.ends_at <= _now and e.ends_at > coalesce(_checked_at, 0) - 50000 and e.group_id + 0 = g.group_id;
    end if;
    select greatest(_token, max(t.token) + 1) into token
    from penstock.tracked as t where t.group_id = g.group_id and t.state <> 'leased';
end
$$;

-- The last row of a receive, which is not a message: it has the token, 0 if nothing was leased, and the name of the group.
create or replace function penstock._token_row(_token bigint, _group text) returns penstock.delivery_row
language sql immutable as $$
    select row (
        null, _token, null, _group, null, null, null, null, null, null, null, null, null, null, null
    )::penstock.delivery_row
$$;

-- Up to _limit messages, best priority first, within a priority due retries before unread ones, and the last row. With
-- _durable false the commit does not wait for the disk, where a receive that is lost by a power cut only means a
-- redelivery: to be used when the receive is all that the transaction does. With _needs_group a group that does not exist
-- is refused instead of made. With _brief others wait for the end of the transaction instead of overtaking it: to be used
-- when it ends at once.
create or replace function penstock.receive_messages(
    _queue text, _group text, _consumer text, _limit integer, _lease_seconds double precision default null,
    _durable boolean default true, _needs_group boolean default false, _brief boolean default false
) returns setof penstock.delivery_row
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    r penstock.receive_call;
    due record;
    work record;
    q penstock.queue;
    g penstock.group;
    _how text;
    _others int8multirange;
    _taken integer;
    _ignored text;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform penstock._check_isolation('a receive');
    end if;
    -- A transaction that has published what it took may be overtaken at any moment: it is not brief any more.
    _brief := _brief and coalesce(current_setting('penstock.published', true), '') <> 'on';
    select * into r from penstock._find_receiver(_queue, _group, _consumer, _limit, _lease_seconds, _brief);
    if r.cluster is distinct from current_setting('penstock.cluster', true) then
        perform penstock._check_cluster();
    end if;
    if r.group_id is null or r.stream_mark is not null then
        r.group_name := penstock._make_group(_queue, _group, _needs_group);
        if r.group_name is not null then
            return query select * from penstock.receive_messages(
                _queue, r.group_name, _consumer, _limit, _lease_seconds, _durable, _needs_group, _brief
            );
            return;
        end if;
        r.group_name := coalesce(_group, 'default');
        r.paused := true;
    end if;
    if r.paused then
        return next penstock._token_row(0, r.group_name);
        return;
    end if;
    if not _durable and r.delivery = 'at_least_once' then
        _ignored := set_config('synchronous_commit', 'off', true);
    end if;
    if r.lanes = 1 and not r.ordered then
        if _brief and penstock._lock_cursor(penstock._lane_key(r.group_id, r.lane_id)) then
            _how := 'cursor';
        else
            select * into _how, _others from penstock._enter_lane(r.group_id, r.lane_id, _brief, true);
        end if;
    end if;
    -- After waiting for the lane: the time must not precede what its holder did.
    r.now := penstock.now_us();
    -- Not the injected clock: a later receive has a greater token even if time stands still.
    r.token := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    r.ends_at := r.now + round(r.lease_seconds * 1000000)::bigint;
    r.checked_at := r.now;
    -- Before anything is read: whatever ended in this snapshot has left its skips to be seen.
    r.fresh := penstock._current_snapshot();
    select * into due from penstock._find_due_work(r.queue_id, r.group_id, r.lane_id, r.lanes, _consumer, r.now);
    if due.is_there is not true then
        -- The group was removed, or the queue deleted, while this waited for the lane.
        return query select * from penstock.receive_messages(_queue, _group, _consumer, _limit, _lease_seconds, _durable, _needs_group);
        return;
    elsif due.is_removed then
        perform penstock._refuse_consumer(_queue, _consumer);
    end if;
    if due.checks then
        perform penstock._check_batches(r.queue_id, r.now);
    end if;
    if due.held or due.tracked or due.lapsed or r.ordered or pg_current_xact_id_if_assigned() is not null then
        select * into q from penstock.queue where queue_id = r.queue_id;
        select * into g from penstock.group where group_id = r.group_id;
        if q.queue_id is null or g.group_id is null then
            -- With several lanes none is locked yet.
            return query select * from penstock.receive_messages(
                _queue, _group, _consumer, _limit, _lease_seconds, _durable, _needs_group
            );
            return;
        elsif due.held or due.tracked or due.lapsed or r.ordered then
            select * into work from penstock._run_due_work(
                q, g, due.held, due.lapsed, (due.cursor).checked_at, _limit, r.token, r.now
            );
            r.has_retries := work.has_retries;
            r.checked_at := work.checked_at;
            r.token := work.token;
        end if;
    end if;
    r.trimmed_position := due.trimmed_position;
    r.has_skips := due.skips;
    r.own := pg_current_xact_id_if_assigned();
    if r.ordered then
        return query select * from penstock._receive_in_order(r, q, g);
        get diagnostics _taken = row_count;
        return next penstock._token_row(case when _taken > 0 then r.token else 0 end, r.group_name);
    else
        return query select * from penstock._receive_from_lanes(r, q, g, due.cursor, _how, _others);
    end if;
    if r.now - r.used_at > 10000000 then
        update penstock.group set used_at = r.now where group_id = (
            select group_id from penstock.group where group_id = r.group_id for update skip locked
        );
    end if;
end
$$;
