-- The first schema of a store. Tables begin with penstock_, because the database is the user's own.
-- Times are microseconds since 1970. The character set and collation are appended to every table by `migration.py`,
-- because the collation that compares bytes and trailing spaces has another name on MySQL. Statements that change tables
-- commit by themselves, so each can be repeated after a step that was cut off.

-- Facts about the store: its schema version, the salt of its ids and its epoch. The row 'ledger' is locked by writers of
-- the ledger.
create table if not exists penstock_store (
    name  varchar(64) primary key,
    value bigint not null
);

-- Numbers that no transaction waits for: positions and staged ids are taken from blocks of them.
create table if not exists penstock_block (
    block_id bigint primary key auto_increment,
    queue_id bigint not null
);

-- Sends in transactions of callers, which take no lock: whoever writes to the queue next appends their messages to the
-- log. A row is a call, or a part of a large one. It names the queue, which may not exist yet.
create table if not exists penstock_arrival (
    arrival_id bigint primary key auto_increment,
    queue      varchar(255) not null,
    sent_at    bigint not null,
    drafts     longblob not null,  -- MessagePack
    key penstock_arrival_queue (queue, arrival_id)
);

-- A queue and its policy (JSON; absent fields have their default). Writers lock the row of their queue until they
-- commit, so what a queue is sent becomes visible in the order of its positions.
create table if not exists penstock_queue (
    queue_id         bigint primary key auto_increment,
    name             varchar(255) not null unique,
    policy           text not null,
    created_at       bigint not null,
    held             bigint not null default 0,  -- messages of penstock_held, counted
    trimmed_position bigint not null default 0,  -- the last position that was trimmed
    primary_group_id bigint,                     -- null until the primary group is made
    last_position    bigint not null default 0,  -- the last position given out
    block_end        bigint not null default 0,  -- the last position of the queue's block
    last_entry       bigint not null default 0,  -- the last audit entry given out
    revision         bigint not null default 0,  -- changes of the policy, counted for wake-ups
    locks            bigint not null default 0   -- transactions of a Galera cluster that have locked the row
);

-- A lane is read in order: one priority of one shard. Messages that ended while held are in lanes of priority
-- -1 - priority, which no group reads.
create table if not exists penstock_lane (
    lane_id  bigint not null auto_increment unique,
    queue_id bigint not null,
    priority int not null,
    shard    int not null,
    trimmed  bigint not null default 0,  -- messages up to the queue's trimmed_position
    careful  int not null default 0,     -- 1 when it ever had a message with times, an address or a batch
    primary key (queue_id, priority, shard)
);

-- The messages. Rows are never changed.
create table if not exists penstock_log (
    position     bigint primary key,
    lane_id      bigint not null,
    created_at   bigint not null,
    id           varchar(36),   -- null for an id that follows from created_at and position
    content_type varchar(255),  -- null for bytes
    headers      mediumtext,    -- JSON
    expires_at   bigint,
    deadline_at  bigint,
    address      varchar(255),
    `key`        varchar(255),
    batch_id     bigint,
    created_by   varchar(255),  -- null for 'system'
    available_at bigint,        -- set when the message was held first
    payload      longblob not null,
    key penstock_log_lane (lane_id, position),
    key penstock_log_expires_at (expires_at),
    key penstock_log_deadline_at (deadline_at),
    key penstock_log_batch (batch_id)
);

-- The ranges of positions that belong to a lane. A run that continues the last one is joined to it.
create table if not exists penstock_run (
    lane_id        bigint not null,
    last_position  bigint not null,
    first_position bigint not null,
    `before`       bigint not null,  -- messages of the lane before this run
    primary key (lane_id, last_position)
);

-- A lane with its end: the position of its last message, and how many it was ever sent.
create or replace view penstock_lane_end as
select lane.lane_id, lane.queue_id, lane.priority, lane.shard, lane.trimmed, lane.careful,
    coalesce(run.last_position, 0) as last_position,
    coalesce(run.`before` + run.last_position - run.first_position + 1, lane.trimmed) as sent
from penstock_lane as lane
left join penstock_run as run
    on run.lane_id = lane.lane_id
    and run.last_position = (
        select last.last_position from penstock_run as last where last.lane_id = lane.lane_id
        order by last.last_position desc limit 1
    );

-- Ids that do not follow from a position: chosen by the caller, or given while the message was held.
create table if not exists penstock_identity (
    queue_id bigint not null,
    id       varchar(36) not null,
    position bigint,  -- null while held
    held_id  bigint,
    primary key (queue_id, id),
    key penstock_identity_position (queue_id, position)
);

-- Messages that are not in the log yet: delayed, or in a batch that has not started.
create table if not exists penstock_held (
    held_id      bigint primary key auto_increment,
    queue_id     bigint not null,
    priority     int not null,
    shard        int not null,
    available_at bigint not null,
    waiting      int not null,  -- 1 while the batch has not started
    id           varchar(36) not null,
    created_at   bigint not null,
    content_type varchar(255),
    headers      mediumtext,
    expires_at   bigint,
    deadline_at  bigint,
    address      varchar(255),
    `key`        varchar(255),
    batch_id     bigint,
    created_by   varchar(255),
    payload      longblob not null,
    key penstock_held_due (queue_id, waiting, available_at),
    key penstock_held_batch (batch_id),
    key penstock_held_expires_at (expires_at),
    key penstock_held_deadline_at (deadline_at)
);

-- A reader of a queue. Six columns count how many messages stand ended in it; what a redrive, a seek or a flush took back
-- is counted beside them, so that both together only grow.
create table if not exists penstock_group (
    group_id             bigint primary key auto_increment,
    queue_id             bigint not null,
    name                 varchar(255) not null,
    used_at              bigint not null,
    stream_position      bigint,                      -- set for a group that is read as a stream
    stream_table         varchar(16) not null default 'messages',
    expired_upto         bigint not null default 0,   -- unread messages that expired before are ended
    succeeded            bigint not null default 0,
    rejected             bigint not null default 0,
    failed               bigint not null default 0,
    lease_expired        bigint not null default 0,
    expired              bigint not null default 0,
    cancelled            bigint not null default 0,
    undone_succeeded     bigint not null default 0,
    undone_rejected      bigint not null default 0,
    undone_failed        bigint not null default 0,
    undone_lease_expired bigint not null default 0,
    undone_expired       bigint not null default 0,
    undone_cancelled     bigint not null default 0,
    failed_attempts      bigint not null default 0,   -- naks, rejects and ended leases
    unique penstock_group_name (queue_id, name)
);

-- How far a group has read a lane.
create table if not exists penstock_cursor (
    group_id      bigint not null,
    lane_id       bigint not null,
    position      bigint not null,
    passed        bigint not null,              -- messages of the lane up to the position
    token         bigint not null default 0,    -- the latest one given out for the lane
    lease_ends_at bigint,                       -- no lease on the lane ends before
    primary key (group_id, lane_id),
    key penstock_cursor_lane (lane_id)
);

-- First attempts in flight: whole ranges of positions. Leases of a group never overlap, so the first one that ends at or
-- after a position is the only one that can hold it.
create table if not exists penstock_lease (
    group_id       bigint not null,
    last_position  bigint not null,
    first_position bigint not null,
    token          bigint not null,
    lane_id        bigint not null,
    consumer       varchar(255) not null,
    ends_at        bigint not null,
    primary key (group_id, last_position)
);

-- Messages that a group tracks one by one: waiting for a retry, tried again, or leased with an end of their own.
create table if not exists penstock_tracked (
    group_id    bigint not null,
    position    bigint not null,
    lane_id     bigint not null,
    priority    int not null,
    state       varchar(16) not null,  -- held -> ready -> leased
    attempt     int not null,          -- deliveries so far
    until_at    bigint not null,       -- held: due at; leased: lease ends at
    expires_at  bigint,                -- a reschedule moves it, so it may differ from the log's
    deadline_at bigint,
    batch_id    bigint,
    token       bigint,
    consumer    varchar(255),
    reason      mediumtext,            -- the last error
    trace       mediumtext,            -- its stack trace
    primary key (group_id, position),
    key penstock_tracked_ready (group_id, state, priority, position),
    key penstock_tracked_until (group_id, state, until_at),
    key penstock_tracked_expires_at (group_id, expires_at),
    key penstock_tracked_deadline_at (group_id, deadline_at)
);

-- Messages that ended in a group before its cursor reached them: the cursor skips them.
create table if not exists penstock_skip (
    group_id bigint not null,
    position bigint not null,
    primary key (group_id, position),
    key penstock_skip_position (position)
);

-- Messages that ended in a group without success.
create table if not exists penstock_dead_letter (
    group_id bigint not null,
    position bigint not null,
    outcome  varchar(16) not null,
    reason   mediumtext,
    attempts int not null,
    died_at  bigint not null,
    trace    mediumtext,
    primary key (group_id, position),
    key penstock_dead_letter_died_at (group_id, died_at, position),
    key penstock_dead_letter_position (position)
);

-- The audit: one row for each range of positions that an event concerns. The send itself is the log's row. Entries are
-- numbered by queue.
create table if not exists penstock_audit (
    queue_id       bigint not null,
    entry_id       bigint not null,
    last_position  bigint not null,
    first_position bigint not null,
    group_id       bigint,                -- null when it concerns all groups
    at             bigint not null,
    event          varchar(32) not null,
    state          varchar(16) not null,  -- the state that the event led to
    `by`           varchar(255),
    reason         mediumtext,
    attempt        int not null,
    token          bigint,
    code           varchar(255),          -- the code of the error for which a consumer gave a message up
    primary key (queue_id, entry_id),
    key penstock_audit_position (last_position)
);

-- The newest message of each address.
create table if not exists penstock_address (
    queue_id bigint not null,
    address  varchar(255) not null,
    id       varchar(36) not null,
    position bigint,       -- null while held
    outcome  varchar(16),  -- null while live
    reason   mediumtext,
    ended_at bigint,
    primary key (queue_id, address),
    key penstock_address_position (queue_id, position)
);

create table if not exists penstock_batch (
    batch_id      bigint primary key auto_increment,
    queue_id      bigint not null,
    name          varchar(255) not null,
    state         varchar(16) not null,  -- open -> running -> finished, or -> cancelling -> cancelled
    total         bigint not null default 0,
    cancelled     bigint not null default 0,
    created_at    bigint not null,
    ended_at      bigint,
    end_message   longblob,              -- the drafts as MessagePack
    abort_message longblob,
    locks         bigint not null default 0,  -- as in penstock_queue
    key penstock_batch_name (queue_id, name, batch_id)
);

-- Members of a batch that are in the log and have not ended in the primary group.
create table if not exists penstock_member (
    position bigint primary key,
    batch_id bigint not null,
    key penstock_member_batch (batch_id)
);

-- Queues other than its own in which a batch has, or had, members.
create table if not exists penstock_batch_queue (
    batch_id bigint not null,
    queue_id bigint not null,
    primary key (batch_id, queue_id),
    key penstock_batch_queue_queue (queue_id)
);

-- Registered consumers; the id is the birth order.
create table if not exists penstock_consumer (
    consumer_id           bigint primary key auto_increment,
    group_id              bigint not null,
    name                  varchar(255) not null,
    registered_at         bigint not null,
    heartbeat_at          bigint not null,
    heartbeat_seconds     double not null,
    max_missed_heartbeats int not null default 1,
    heartbeats_per_sweep  int not null default 10,
    heartbeats            bigint not null default 0,
    unique (group_id, name)
);

-- Consumers that were removed because they missed their heartbeats and have not registered again: they receive nothing.
create table if not exists penstock_removed_consumer (
    group_id   bigint not null,
    name       varchar(255) not null,
    removed_at bigint not null,
    primary key (group_id, name)
);

create table if not exists penstock_schedule (
    name     varchar(255) primary key,
    cron     varchar(1000) not null,
    timezone varchar(255) not null,
    queue    varchar(255) not null,
    message  longblob not null,  -- the draft as MessagePack
    catch_up varchar(16) not null,
    paused   int not null default 0,
    next_at  bigint,
    last_at  bigint,
    key penstock_schedule_next_at (next_at)
);

-- Everything up to the position was finished in all groups of the queue at this time: retention counts from here.
create table if not exists penstock_mark (
    queue_id bigint not null,
    at       bigint not null,
    position bigint not null,
    primary key (queue_id, at)
);

-- The last message and the last audit entry of a queue that were trimmed.
create table if not exists penstock_trimmed (
    queue_id bigint not null,
    kind     varchar(16) not null,  -- messages or audit
    number   bigint not null,       -- position or entry
    at       bigint not null,
    primary key (queue_id, kind)
);

-- Messages that were removed one by one, for as long as audit entries cover their positions.
create table if not exists penstock_removed (
    queue_id   bigint not null,
    position   bigint not null,
    created_at bigint not null,
    primary key (queue_id, position)
);

-- Small facts of the pipeline and the servers, changed together.
create table if not exists penstock_ledger (
    kind  varchar(64) not null,
    `key` varchar(600) not null,
    value longtext not null,  -- JSON
    primary key (kind, `key`)
);

-- Messages that a sink has staged and not sent yet.
create table if not exists penstock_staged (
    staged_id    bigint primary key,
    content_type varchar(255),  -- null for bytes
    options      longblob,      -- MessagePack; null for nothing but a payload
    payload      longblob not null
);

-- The ranges of them that were staged together.
create table if not exists penstock_stage (
    first_id  bigint primary key,
    last_id   bigint not null,
    queue_id  bigint not null,
    `key`     varchar(255) not null,
    part      varchar(255) not null,
    priority  int,              -- of all of them, when they have no other options
    staged_at bigint not null,
    key penstock_stage_key (queue_id, `key`, part)
);
