-- The first schema of a store. Tables begin with penstock_, because the file is the user's own database.
-- Times are integers: microseconds since 1970. A position is a message's place in the one log of the store.

-- Facts about the store: its schema version, the salt of its ids, its epoch, and the last position whose message may
-- be gone (the log itself knows later ones).
create table penstock_store (
    name  text primary key,
    value integer not null
) strict, without rowid;

-- A queue and its policy (JSON; absent fields have their default).
create table penstock_queue (
    queue_id         integer primary key,
    name             text not null unique,
    policy           text not null,
    created_at       integer not null,
    held             integer not null default 0,  -- messages of penstock_held, counted
    trimmed_position integer not null default 0,  -- up to here the log has been trimmed
    primary_group_id integer                      -- null until the primary group is made
) strict;

-- A lane is what is read in order: one priority of one shard. Messages that ended while held lie in a lane of
-- priority -1 - priority, which nobody reads.
create table penstock_lane (
    lane_id       integer primary key,
    queue_id      integer not null references penstock_queue,
    priority      integer not null,
    shard         integer not null,
    trimmed       integer not null default 0,  -- messages at or before the queue's trimmed_position
    careful       integer not null default 0,  -- 1 when it ever had a message with times, an address or a batch
    unique (queue_id, priority, shard)
) strict;

-- The messages, in the order in which they became ready. Rows are never changed.
create table penstock_log (
    position     integer primary key,
    lane_id      integer not null,
    created_at   integer not null,
    id           text,                         -- null for an id that follows from created_at and position
    content_type text,                         -- null for bytes
    headers      text,                         -- JSON
    expires_at   integer,
    deadline_at  integer,
    address      text,
    key          text,
    batch_id     integer,
    created_by   text,                         -- null for 'system'
    available_at integer,                      -- set when the message was held first
    payload      blob not null
) strict;
create index penstock_log_expires_at on penstock_log (expires_at) where expires_at is not null;
create index penstock_log_deadline_at on penstock_log (deadline_at) where deadline_at is not null;

-- Which stretches of the log belong to a lane. One send makes one run per lane, and a run that goes on where the
-- last one ended is joined to it, so this stays far smaller than an index over the messages.
create table penstock_run (
    lane_id        integer not null,
    last_position  integer not null,
    first_position integer not null,
    before         integer not null,           -- messages of the lane before this stretch
    primary key (lane_id, last_position)
) strict, without rowid;

-- A lane with its end: the position of its last message, and how many it was ever sent.
create view penstock_lane_end as
select lane.lane_id, lane.queue_id, lane.priority, lane.shard, lane.trimmed, lane.careful,
    coalesce(run.last_position, 0) as last_position,
    coalesce(run.before + run.last_position - run.first_position + 1, lane.trimmed) as sent
from penstock_lane as lane
left join penstock_run as run
    on run.lane_id = lane.lane_id
    and run.last_position = (select max(last.last_position) from penstock_run as last where last.lane_id = lane.lane_id);

-- Ids that do not follow from a position: chosen by the caller, or given while the message was held.
create table penstock_identity (
    queue_id integer not null,
    id       text not null,
    position integer,                          -- null while held
    held_id  integer,
    primary key (queue_id, id)
) strict, without rowid;

-- Messages that are not in the log yet: delayed, or in a batch that has not started.
create table penstock_held (
    held_id      integer primary key,
    queue_id     integer not null,
    priority     integer not null,
    shard        integer not null,
    available_at integer not null,
    waiting      integer not null,             -- 1 while the batch has not started
    id           text not null,
    created_at   integer not null,
    content_type text,
    headers      text,
    expires_at   integer,
    deadline_at  integer,
    address      text,
    key          text,
    batch_id     integer,
    created_by   text,
    payload      blob not null
) strict;
create index penstock_held_due on penstock_held (queue_id, available_at) where waiting = 0;
create index penstock_held_batch on penstock_held (batch_id) where batch_id is not null;
create index penstock_held_expires_at on penstock_held (expires_at) where expires_at is not null;
create index penstock_held_deadline_at on penstock_held (deadline_at) where deadline_at is not null;

-- A reader of a queue. The last six columns count how messages ended in it.
create table penstock_group (
    group_id        integer primary key,
    queue_id        integer not null references penstock_queue,
    name            text not null,
    used_at         integer not null,
    stream_position integer,                   -- set for a group that is read as a stream
    expired_upto    integer not null default 0, -- sweeps have ended what expired unread up to this time
    succeeded       integer not null default 0,
    rejected        integer not null default 0,
    failed          integer not null default 0,
    lease_expired   integer not null default 0,
    expired         integer not null default 0,
    cancelled       integer not null default 0,
    unique (queue_id, name)
) strict;

-- How far a group has read a lane.
create table penstock_cursor (
    group_id integer not null,
    lane_id  integer not null,
    position integer not null,
    passed   integer not null,                 -- messages of the lane at or before the position
    primary key (group_id, lane_id)
) strict, without rowid;

-- First attempts in flight: whole ranges of positions, because a receive takes its messages in a row.
create table penstock_lease (
    token          integer not null,
    first_position integer not null,
    last_position  integer not null,
    group_id       integer not null,
    lane_id        integer not null,
    consumer       text not null,
    ends_at        integer not null,
    primary key (token, first_position)
) strict, without rowid;
create index penstock_lease_ends_at on penstock_lease (group_id, ends_at);

-- Messages that a group has to look after one by one: waiting for a retry, tried again, or leased with an end of
-- their own.
create table penstock_tracked (
    group_id    integer not null,
    position    integer not null,
    lane_id     integer not null,
    priority    integer not null,
    state       text not null,                 -- held -> ready -> leased
    attempt     integer not null,              -- deliveries so far
    until_at    integer not null,              -- held: due at; leased: lease ends at
    expires_at  integer,                       -- a reschedule moves it, so it may differ from the log's
    deadline_at integer,
    batch_id    integer,
    token       integer,
    consumer    text,
    reason      text,                          -- the last error
    primary key (group_id, position)
) strict, without rowid;
create index penstock_tracked_ready on penstock_tracked (group_id, priority, position) where state = 'ready';
create index penstock_tracked_held on penstock_tracked (group_id, until_at) where state = 'held';
create index penstock_tracked_leased on penstock_tracked (group_id, until_at) where state = 'leased';
create index penstock_tracked_expires_at on penstock_tracked (expires_at) where expires_at is not null;
create index penstock_tracked_deadline_at on penstock_tracked (deadline_at) where deadline_at is not null;

-- Messages that ended in a group before its cursor came to them: the cursor passes over.
create table penstock_skip (
    group_id integer not null,
    position integer not null,
    primary key (group_id, position)
) strict, without rowid;

-- Messages that ended in a group without success.
create table penstock_dead_letter (
    group_id integer not null,
    position integer not null,
    outcome  text not null,
    reason   text,
    attempts integer not null,
    died_at  integer not null,
    primary key (group_id, position)
) strict, without rowid;
create index penstock_dead_letter_died_at on penstock_dead_letter (group_id, died_at);
create index penstock_dead_letter_position on penstock_dead_letter (position);

-- What happened, one row for each range of positions it happened to. The send itself is the log's row.
create table penstock_audit (
    entry_id       integer primary key,
    last_position  integer not null,
    first_position integer not null,
    queue_id       integer not null,
    group_id       integer,                    -- null when it concerns all groups
    at             integer not null,
    event          text not null,
    state          text not null,              -- the state that the event led to
    by             text,
    reason         text,
    attempt        integer not null,
    token          integer
) strict;
create index penstock_audit_position on penstock_audit (last_position);

-- The newest message of each address.
create table penstock_address (
    queue_id integer not null,
    address  text not null,
    id       text not null,
    position integer,                          -- null while held
    outcome  text,                             -- null while live
    reason   text,
    ended_at integer,
    primary key (queue_id, address)
) strict, without rowid;
create index penstock_address_live on penstock_address (queue_id, position) where outcome is null;

create table penstock_batch (
    batch_id   integer primary key,
    queue_id   integer not null,
    name       text not null,
    state      text not null,                  -- open -> running -> finished, or -> cancelling -> cancelled
    total      integer not null default 0,
    created_at integer not null,
    ended_at   integer,
    end_message   blob,                        -- the drafts as MessagePack
    abort_message blob
) strict;
create index penstock_batch_name on penstock_batch (queue_id, name, batch_id);

-- Members of a batch that are in the log and have not ended in the primary group.
create table penstock_member (
    position integer primary key,
    batch_id integer not null
) strict;
create index penstock_member_batch on penstock_member (batch_id);

-- Registered consumers; the id is the birth order.
create table penstock_consumer (
    consumer_id       integer primary key autoincrement,
    group_id          integer not null,
    name              text not null,
    registered_at     integer not null,
    heartbeat_at      integer not null,
    heartbeat_seconds real not null,
    unique (group_id, name)
) strict;

create table penstock_schedule (
    name       text primary key,
    cron       text not null,
    timezone   text not null,
    queue      text not null,
    message    blob not null,                  -- the draft as MessagePack
    catch_up   text not null,
    paused     integer not null default 0,
    next_at    integer,
    last_at    integer
) strict, without rowid;
create index penstock_schedule_next_at on penstock_schedule (next_at) where next_at is not null;

-- Everything up to the position was finished in all groups of the queue at this time: trimming waits from here.
create table penstock_mark (
    queue_id integer not null,
    at       integer not null,
    position integer not null,
    primary key (queue_id, at)
) strict, without rowid;
