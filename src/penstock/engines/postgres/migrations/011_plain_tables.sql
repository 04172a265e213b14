-- The tables log, claim and step are ordinary ones: retention deletes the rows of each queue. Before, they were split into
-- segments, whose current number was kept in a sequence, which neither a rollback nor a crash takes back.
--
-- All rows are copied: the time and the room that this takes grow with the store. Nothing else reads or writes meanwhile.
lock table penstock.log, penstock.claim, penstock.step in access exclusive mode;

-- Functions and views that depend on the old tables. Functions are made anew after this step, and so are views, which keep
-- their columns until then, because views of other schemas may depend on them.
do $$
declare
    one record;
begin
    for one in
        select distinct v.oid::regclass as name, (
            select string_agg(format('null::%s as %I', format_type(a.atttypid, a.atttypmod), a.attname), ', ' order by a.attnum)
            from pg_attribute as a where a.attrelid = v.oid and a.attnum > 0 and not a.attisdropped
        ) as columns
        from pg_class as v
        join pg_rewrite as r on r.ev_class = v.oid
        join pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
        where v.relkind = 'v' and v.relnamespace = 'penstock'::regnamespace
            and d.refobjid in ('penstock.log'::regclass, 'penstock.claim'::regclass, 'penstock.step'::regclass)
    loop
        execute format('create or replace view %s as select %s where false', one.name, one.columns);
    end loop;
    for one in
        select p.oid::regprocedure as name from pg_proc as p
        where p.pronamespace = 'penstock'::regnamespace and (
            p.proname in (
                '_segment', '_put', '_send', '_write', '_take_carefully', '_take_lane', '_release_part', '_freed', '_kept',
                '_free_segment', '_carry_trails', 'sweep_segments', 'sweep_queue', 'take_positions', 'parts', 'check_part',
                '_trim', '_finished_position', '_shorten_trail'
            )
            or exists (
                select 1 from pg_type as t
                where t.typrelid in ('penstock.log'::regclass, 'penstock.claim'::regclass, 'penstock.step'::regclass)
                    and t.oid = any (array[p.prorettype] || p.proargtypes::oid[] || p.proallargtypes)
            )
        )
    loop
        execute format('drop function if exists %s', one.name);
    end loop;
end
$$;

alter table penstock.log rename to segmented_log;
alter table penstock.claim rename to segmented_claim;
alter table penstock.step rename to segmented_step;

-- The messages. Rows are never changed.
create table penstock.log (
    seq          bigint not null,
    tx           xid8 not null,                      -- the transaction that sent it
    created_at   bigint not null,
    lane_id      integer not null,
    id           uuid,                               -- null for an id that follows from created_at and seq
    content_type text,                               -- null for bytes
    headers      text,                               -- JSON
    expires_at   bigint,
    deadline_at  bigint,
    address      text,
    key          text,
    batch_id     bigint,
    created_by   text,                               -- null for 'system'
    available_at bigint,                             -- set when the message was held first
    payload      bytea not null
);

-- Receives of unread messages, one row for each lane. The newest of (group, lane) is the cursor: it reads the window of
-- messages that are visible in snap and not in prev, and stands at (tx, seq) inside it, unless the window is used up.
create table penstock.claim (
    entry     bigint not null,
    group_id  integer not null,
    lane_id   integer not null,
    number    bigint not null,
    tx        xid8 not null,                         -- the transaction that made the claim
    prev      pg_snapshot not null,
    snap      pg_snapshot not null,
    at_tx     xid8 not null,
    at_seq    bigint not null,
    used_up   boolean not null,
    above     bigint not null,                       -- what is not above this position was passed by a seek or a trim
    passed    bigint not null,                       -- messages of the lane behind the cursor
    at        bigint not null,
    token     bigint not null,
    checked_at bigint not null,                      -- leases of the group that had ended by then were reclaimed
    first     bigint not null,                       -- where the cursor stands if nothing was handed out
    last      bigint not null,
    n         integer not null,                      -- 0 for a cursor that was moved without a receive
    consumer  text,
    positions int8multirange                         -- what was handed out; null for all from first to last
);

-- What else happened, one row for each set of positions it happened to. The send itself is the log's row.
create table penstock.step (
    entry     bigint not null,
    queue_id  integer not null,
    group_id  integer,                               -- null when it concerns all groups
    tx        xid8 not null,
    at        bigint not null,
    token     bigint,
    first     bigint not null,
    last      bigint not null,
    n         integer not null,
    attempt   integer not null,
    event     text not null,
    state     text not null,                         -- the state that the event led to
    by        text,
    reason    text,
    positions int8multirange                         -- null for all from first to last
);

-- How far the rows of a queue that are past retention have been deleted.
create table penstock.deletion (
    queue_id integer not null,
    lane_id  integer not null,                       -- 0 for the steps of the queue
    tx       xid8 not null default '0',              -- messages up to (tx, seq) were looked at
    seq      bigint not null default 0,
    upto     bigint not null default 0,              -- claims or steps whose last position is lower were looked at
    again_at bigint not null default 0,              -- then all are looked at again, from the start
    primary key (queue_id, lane_id)
);

-- Rows that were carried over lie in segment 0. What a segment still had beside them goes before.
insert into penstock.log (
    seq, tx, created_at, lane_id, id, content_type, headers, expires_at, deadline_at, address, key, batch_id, created_by,
    available_at, payload
)
select m.seq, m.tx, m.created_at, m.lane_id, m.id, m.content_type, m.headers, m.expires_at, m.deadline_at, m.address, m.key,
    m.batch_id, m.created_by, m.available_at, m.payload
from penstock.segmented_log as m
where m.segment > 0 or not exists (
    select 1 from penstock.segmented_log as o where o.segment > 0 and o.seq = m.seq
)
order by m.segment;

-- Two claims may have one number where the current segment had gone back: the later one keeps it.
insert into penstock.claim (
    entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_seq, used_up, above, passed, at, token, checked_at, first,
    last, n, consumer, positions
)
select c.entry, c.group_id, c.lane_id, case when c.place = 1 then c.number else -c.entry end, c.tx, c.prev, c.snap, c.at_tx,
    c.at_seq, c.used_up, c.above, c.passed, c.at, c.token, c.checked_at, case when c.n = 0 then c.at_seq else c.first end,
    case when c.n = 0 then c.at_seq else c.last end, c.n, c.consumer, c.positions
from (
    select o.*, row_number() over (partition by o.group_id, o.lane_id, o.number order by o.entry desc) as place
    from (
        select distinct on (entry) * from penstock.segmented_claim order by entry, segment = 0, n desc
    ) as o
) as c
order by c.entry;

insert into penstock.step (
    entry, queue_id, group_id, tx, at, token, first, last, n, attempt, event, state, by, reason, positions
)
select distinct on (s.entry) s.entry, s.queue_id, s.group_id, s.tx, s.at, s.token, s.first, s.last, s.n, s.attempt, s.event,
    s.state, s.by, s.reason, s.positions
from penstock.segmented_step as s
order by s.entry, s.segment = 0, s.n desc;

-- Messages in segments that were thought to be empty: no receive has looked there.
create temporary table overlooked on commit drop as
select m.seq from penstock.segmented_log as m join penstock.segment as s using (segment) where s.sealed = '0';
drop table penstock.segmented_log, penstock.segmented_claim, penstock.segmented_step, penstock.segment;
drop sequence penstock.segment_number;

create index log_lane on penstock.log (lane_id, tx, seq);
create index log_seq on penstock.log (seq);
create index log_expires_at on penstock.log (expires_at) where expires_at is not null;
create index log_deadline_at on penstock.log (deadline_at) where deadline_at is not null;
create unique index claim_cursor on penstock.claim (group_id, lane_id, number);
create index claim_last on penstock.claim (lane_id, last, first);
create index claim_wide on penstock.claim (lane_id, last, first) where last - first >= 16384;
create index claim_tx on penstock.claim (lane_id, tx) where n > 0;
create index step_last on penstock.step (queue_id, last, first);
create index step_wide on penstock.step (queue_id, last, first) where last - first >= 16384;
create index step_tx on penstock.step (queue_id, tx);

-- A cursor may have gone past messages that it had no chance to see: they are ready. All others that it has passed were
-- handed out or ended, and that is written down.
do $$
declare
    c record;
    _count bigint;
begin
    for c in
        select distinct on (k.group_id, k.lane_id) k.*, n.queue_id, n.priority, q.trimmed_position
        from penstock.claim as k
        join penstock.lane as n using (lane_id)
        join penstock.queue as q using (queue_id)
        where n.priority >= 0 and exists (select 1 from overlooked)
        order by k.group_id, k.lane_id, k.number desc
    loop
        insert into penstock.tracked (
            group_id, seq, lane_id, priority, state, attempt, until_at, token, created_at, id, content_type, headers,
            expires_at, deadline_at, address, key, batch_id, created_by, available_at, payload
        )
        select c.group_id, m.seq, m.lane_id, c.priority, 'ready', 0, 0, 0, m.created_at, m.id, m.content_type, m.headers,
            m.expires_at, m.deadline_at, m.address, m.key, m.batch_id, m.created_by, m.available_at, m.payload
        from overlooked as o join penstock.log as m using (seq)
        where m.lane_id = c.lane_id and m.seq > c.trimmed_position
            and (
                pg_visible_in_snapshot(m.tx, c.prev)
                or pg_visible_in_snapshot(m.tx, c.snap)
                and (c.used_up or (m.tx, m.seq) <= (c.at_tx, c.at_seq) or m.seq <= c.above)
            )
            and not exists (
                select 1 from penstock.claim as k
                where k.lane_id = m.lane_id and k.group_id = c.group_id and k.n > 0 and m.seq between k.first and k.last
                    and (k.positions is null or k.positions @> m.seq)
            )
            and not exists (
                select 1 from penstock.step as s
                where s.queue_id = c.queue_id and s.group_id = c.group_id and m.seq between s.first and s.last
                    and (s.positions is null or s.positions @> m.seq)
            )
        on conflict do nothing;
        get diagnostics _count = row_count;
        update penstock.claim set passed = passed + _count
        where group_id = c.group_id and lane_id = c.lane_id and number = c.number;
    end loop;
end
$$;

-- A message that was handed out again after it had died is live.
delete from penstock.dead_letter as d
where exists (select 1 from penstock.tracked as t where t.group_id = d.group_id and t.seq = d.seq)
    or exists (
        select 1 from penstock.lease as e
        where e.group_id = d.group_id and e.lane_id = d.lane_id and e.positions @> d.seq
    );
