-- The first schema of a store: all of it lies in the schema penstock. Times are integers: microseconds since 1970.
--
-- Three tables take a row or more for every message or batch and are only ever appended to: log (the messages), claim
-- (receives) and step (what else happened). They are split alike into segments: log_1 to log_4 are used in turn and
-- truncated whole when everything in them is past retention; log_0 has the few rows that were carried over.
create schema if not exists penstock;

-- Facts about the store, in one row.
create table penstock.store (
    only_row          boolean primary key default true check (only_row),
    schema_version    integer not null,
    functions_digest  text not null default '',
    salt              integer not null,              -- in the ids that Penstock makes
    epoch             bigint not null,               -- changes when the positions of the log get a new meaning
    system_identifier bigint not null,               -- the cluster whose transaction numbers the tables hold
    injected_clock    boolean not null default false -- tests may set the time with the setting penstock.now
);

-- A message's place in the log. Transaction numbers are taken before positions: see the function penstock._moment.
create sequence penstock.position as bigint;
-- The order of what happened.
create sequence penstock.entry as bigint;
-- Counts the segments opened so far; the current one is this number modulo the number of segments. A sequence, because
-- it must be read as it is now, whatever the snapshot of a transaction.
create sequence penstock.segment_number as bigint minvalue 0 start 0;

-- A queue and its policy.
create table penstock.queue (
    queue_id               integer generated always as identity primary key,
    name                   text not null unique,
    created_at             bigint not null,
    primary_group_id       integer,                  -- null until the primary group is made
    trimmed_position       bigint not null default 0, -- up to here the log has been trimmed
    trimmed_tx             xid8,                     -- the last transaction of what was trimmed
    log_mark               text,                     -- from here the log is whole, after a flush
    trail_mark             text,                     -- from here the trail is whole; null for from the beginning
    lease_seconds          double precision not null default 30,
    max_retries            integer default 7,
    backoff_base_seconds   double precision not null default 10,
    backoff_factor         double precision not null default 2,
    backoff_jitter_seconds double precision not null default 5,
    backoff_max_seconds    double precision not null default 3600,
    delay_seconds          double precision not null default 0,
    ttl_seconds            double precision,
    delivery               text not null default 'at_least_once',
    shards                 integer not null default 1,
    ordered                boolean not null default false,
    primary_group          text default 'default',
    history_seconds        double precision not null default 86400,
    group_idle_seconds     double precision not null default 604800,
    dead_letter_seconds    double precision not null default 7862400,
    max_payload_bytes      integer not null default 16777216,
    paused                 boolean not null default false
);

-- A lane is what is read in order: one priority of one shard. Messages that ended while held lie in a lane of
-- priority -1 - priority, which nobody reads.
create table penstock.lane (
    lane_id      integer generated always as identity primary key,
    queue_id     integer not null,
    priority     integer not null,
    shard        integer not null,
    trimmed      bigint not null default 0,          -- messages at or before the queue's trimmed_position
    sent         bigint not null default 0,          -- messages visible in the snapshot counted, trimmed ones included
    counted      pg_snapshot not null default '1:1:',
    unique (queue_id, priority, shard)
);

-- A reader of a queue: a group. The counts are of messages that ended in it, up to the snapshot counted.
create table penstock.reader (
    group_id      integer generated always as identity primary key,
    queue_id      integer not null,
    name          text not null,
    used_at       bigint not null,
    stream_mark   text,                              -- set for a group that is read as a stream
    stream_table  text,                              -- messages, or audit for what happened to them
    expired_upto  bigint not null default 0,         -- sweeps have ended what expired unread up to this time
    counted       pg_snapshot not null default '1:1:',
    succeeded     bigint not null default 0,
    rejected      bigint not null default 0,
    failed        bigint not null default 0,
    lease_expired bigint not null default 0,
    expired       bigint not null default 0,
    cancelled     bigint not null default 0,
    unique (queue_id, name)
);

-- The messages. Rows are never changed.
create table penstock.log (
    seq          bigint not null,
    tx           xid8 not null,                      -- the transaction that sent it
    created_at   bigint not null,
    lane_id      integer not null,
    segment      smallint not null,
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
) partition by list (segment);
create index log_lane on penstock.log (lane_id, tx, seq);
create index log_seq on penstock.log (seq);
create index log_expires_at on penstock.log (expires_at) where expires_at is not null;
create index log_deadline_at on penstock.log (deadline_at) where deadline_at is not null;

-- Lanes that ever had a message with an expiry, a deadline or a batch. There may be several rows for one: a unique one
-- would make senders wait for each other.
create table penstock.careful (
    lane_id integer not null
);
create index careful_lane on penstock.careful (lane_id);

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
    first     bigint not null,
    last      bigint not null,
    n         integer not null,                      -- 0 for a cursor that was moved without a receive
    segment   smallint not null,
    consumer  text,
    positions int8multirange                         -- what was handed out; null for all from first to last
) partition by list (segment);
create unique index claim_cursor on penstock.claim (group_id, lane_id, number, segment);
create index claim_last on penstock.claim (lane_id, last, first) where n > 0;
create index claim_wide on penstock.claim (lane_id, last, first) where last - first >= 16384;
create index claim_tx on penstock.claim (lane_id, tx) where n > 0;

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
    segment   smallint not null,
    event     text not null,
    state     text not null,                         -- the state that the event led to
    by        text,
    reason    text,
    positions int8multirange                         -- null for all from first to last
) partition by list (segment);
create index step_last on penstock.step (queue_id, last, first);
create index step_wide on penstock.step (queue_id, last, first) where last - first >= 16384;
create index step_tx on penstock.step (queue_id, tx);

-- What is carried over is ordinary; the others are only appended to and truncated: cleaning them would be in vain.
create table penstock.log_0 partition of penstock.log for values in (0);
create table penstock.claim_0 partition of penstock.claim for values in (0);
create table penstock.step_0 partition of penstock.step for values in (0);
do $$
declare
    name text;
begin
    for number in 1..4 loop
        foreach name in array array['log', 'claim', 'step'] loop
            execute format(
                'create table penstock.%I partition of penstock.%I for values in (%s) with (autovacuum_enabled = false)',
                name || '_' || number, name, number
            );
        end loop;
    end loop;
end
$$;

-- When a segment was opened and closed. Every message in it was sent by a transaction before sealed.
create table penstock.segment (
    segment   smallint primary key,
    opened_at bigint not null,
    sealed    xid8,                                  -- null for the current one, 0 for one that is empty
    look_at   bigint not null default 0              -- when it is worth looking whether it can go
);

-- Up to this position everything was decided when all transactions before tx had ended.
create table penstock.moment (
    seq bigint not null,
    tx  xid8 not null
);

-- First attempts in flight: one row for a whole receive.
create table penstock.lease (
    group_id  integer not null,
    token     bigint not null,
    lane_id   integer not null,
    ends_at   bigint not null,
    leased_at bigint not null,
    first     bigint not null,
    last      bigint not null,
    n         integer not null,
    checksum  bigint not null,                       -- the sum of its positions
    consumer  text not null,
    positions int8multirange not null,               -- those that are not settled
    primary key (group_id, token, lane_id)
) with (fillfactor = 70);
create index lease_ends_at on penstock.lease (group_id, ends_at);

-- Messages that a group has to look after one by one: waiting for a retry, tried again, or leased with an end of
-- their own. They have a copy of the message, so that the log need not keep it.
create table penstock.tracked (
    group_id     integer not null,
    seq          bigint not null,
    lane_id      integer not null,
    priority     integer not null,
    state        text not null,                      -- held -> ready -> leased
    attempt      integer not null,                   -- deliveries so far
    until_at     bigint not null,                    -- held: due at; leased: lease ends at
    token        bigint not null,
    leased_at    bigint,
    consumer     text,
    reason       text,                               -- the last error
    created_at   bigint not null,
    id           uuid,
    content_type text,
    headers      text,
    expires_at   bigint,                             -- a reschedule moves it, so it may differ from the log's
    deadline_at  bigint,
    address      text,
    key          text,
    batch_id     bigint,
    created_by   text,
    available_at bigint,
    payload      bytea not null,
    primary key (group_id, seq)
);
create index tracked_ready on penstock.tracked (group_id, priority, seq) where state = 'ready';
create index tracked_held on penstock.tracked (group_id, until_at) where state = 'held';
create index tracked_leased on penstock.tracked (group_id, until_at) where state = 'leased';

-- Messages that ended in a group before its cursor came to them: the cursor passes over.
create table penstock.skip (
    group_id integer not null,
    seq      bigint not null,
    primary key (group_id, seq)
);

-- Messages that are not in the log yet: delayed, or in a batch that has not started.
create table penstock.held (
    held_id      bigint generated always as identity primary key,
    queue_id     integer not null,
    priority     integer not null,
    shard        integer not null,
    available_at bigint not null,
    waiting      boolean not null,                   -- while the batch has not started
    id           uuid not null,
    created_at   bigint not null,
    content_type text,
    headers      text,
    expires_at   bigint,
    deadline_at  bigint,
    address      text,
    key          text,
    batch_id     bigint,
    created_by   text,
    payload      bytea not null
);
create index held_due on penstock.held (queue_id, available_at) where not waiting;
create index held_queue on penstock.held (queue_id);
create index held_batch on penstock.held (batch_id) where batch_id is not null;

-- Ids that do not follow from a position: chosen by the caller, or given while the message was held.
create table penstock.identity (
    queue_id integer not null,
    id       uuid not null,
    seq      bigint,                                 -- null while held
    held_id  bigint,
    primary key (queue_id, id)
);
create index identity_seq on penstock.identity (queue_id, seq);

-- Messages that ended in a group without success, with a copy of the message.
create table penstock.dead_letter (
    group_id     integer not null,
    seq          bigint not null,
    queue_id     integer not null,
    lane_id      integer not null,
    priority     integer not null,
    outcome      text not null,
    reason       text,
    attempts     integer not null,
    died_at      bigint not null,
    created_at   bigint not null,
    id           uuid,
    content_type text,
    headers      text,
    expires_at   bigint,
    deadline_at  bigint,
    address      text,
    key          text,
    batch_id     bigint,
    created_by   text,
    available_at bigint,
    payload      bytea not null,
    primary key (group_id, seq)
);
create index dead_letter_died_at on penstock.dead_letter (group_id, died_at, seq);
create index dead_letter_queue on penstock.dead_letter (queue_id, seq);

-- The newest message of each address.
create table penstock.address (
    queue_id integer not null,
    address  text not null,
    id       uuid not null,
    seq      bigint,                                 -- null while held
    outcome  text,                                   -- null while live
    reason   text,
    ended_at bigint,
    primary key (queue_id, address)
);
create index address_seq on penstock.address (queue_id, seq);

create table penstock.batch (
    batch_id      bigint generated always as identity primary key,
    queue_id      integer not null,
    name          text not null,
    state         text not null default 'open',      -- open -> running -> finished, or -> cancelling -> cancelled
    total         bigint not null default 0,         -- members so far, counted when it ends; see penstock._batch_total
    created_at    bigint not null,
    ended_at      bigint,
    end_message   jsonb,
    abort_message jsonb
);
create index batch_name on penstock.batch (queue_id, name, batch_id);

-- Members of a batch that have not ended in the primary group; those that are held are found there.
create table penstock.member (
    seq      bigint primary key,
    batch_id bigint not null
);
create index member_batch on penstock.member (batch_id);

-- How many members joined a batch, one row for each send.
create table penstock.joining (
    batch_id bigint not null,
    n        integer not null
);
create index joining_batch on penstock.joining (batch_id);

-- Registered consumers; the id is the birth order.
create table penstock.consumer (
    consumer_id       bigint generated always as identity primary key,
    group_id          integer not null,
    name              text not null,
    registered_at     bigint not null,
    heartbeat_at      bigint not null,
    heartbeat_seconds double precision not null,
    unique (group_id, name)
);

create table penstock.schedule (
    name     text primary key,
    cron     text not null,
    timezone text not null,
    queue    text not null,
    message  jsonb not null,
    catch_up text not null,
    paused   boolean not null default false,
    next_at  bigint,
    last_at  bigint
);
create index schedule_next_at on penstock.schedule (next_at) where next_at is not null;

-- Everything up to the position was finished in all groups of the queue at this time: trimming waits from here.
create table penstock.finished (
    queue_id integer not null,
    at       bigint not null,
    seq      bigint not null,
    primary key (queue_id, at)
);

-- Small facts that the pipeline keeps here; values are JSON.
create table penstock.ledger (
    kind  text not null,
    key   text not null,
    value text not null,
    primary key (kind, key)
);

-- Messages put aside by a sink, until all its parts are there.
create table penstock.staged (
    staged_id    bigint generated always as identity primary key,
    queue_id     integer not null,
    key          text not null,
    part         text not null,
    staged_at    bigint not null,
    content_type text,
    options      jsonb,                              -- null for a plain message
    payload      bytea not null
);
create index staged_key on penstock.staged (queue_id, key, part, staged_id);

-- A message in flight or in care, with what has to be known to decide about it.
create type penstock.flight as (
    seq          bigint,
    lane_id      integer,
    priority     integer,
    attempt      integer,
    token        bigint,
    consumer     text,
    reason       text,
    created_at   bigint,
    id           uuid,
    content_type text,
    headers      text,
    expires_at   bigint,
    deadline_at  bigint,
    address      text,
    key          text,
    batch_id     bigint,
    created_by   text,
    available_at bigint,
    payload      bytea
);

-- A row of a receive. The last one has no position: its created_at is the token, its content_type the group.
create type penstock.delivery_row as (
    seq           bigint,
    created_at    bigint,
    id            text,
    content_type  text,
    headers       text,
    expires_at    bigint,
    deadline_at   bigint,
    address       text,
    key           text,
    batch         text,
    created_by    text,
    payload       bytea,
    priority      integer,
    attempt       integer,
    lease_ends_at bigint
);
