-- Schemas with the calls and tables of other queues' conventions, for people who come from there. The messages
-- themselves are in the log like all others.

-- One row for each such schema. Its functions know it by its number, so that it may be renamed.
create table penstock.door (
    door_id      integer generated always as identity primary key,
    schema_name  text not null unique,
    kind         text not null check (kind in ('queue', 'message')),
    queue_id     integer not null,
    announced_at bigint not null default 0           -- when messages that wait were last announced again
);
create index door_queue_id on penstock.door (queue_id);

-- What the stored-procedure conventions can set and what they note beside it. A value is kept here only where the
-- queue's policy has no field for it.
create table penstock.door_setting (
    door_id       integer not null references penstock.door on delete cascade,
    setting_name  text not null,
    setting_value text,
    modified_by   text not null default 'system',
    modified_on   timestamptz not null default current_timestamp,
    notes         text,
    primary key (door_id, setting_name)
);

-- Rows of the audit that the conventions' callers write, and how long a lease was asked for.
create table penstock.door_note (
    entry      bigint not null,
    door_id    integer not null references penstock.door on delete cascade,
    at         bigint not null,
    message_id uuid not null,
    state_id   integer not null,
    by         text not null,
    reason     text not null,
    token      bigint                                -- set for the note on a receive
);
create index door_note_message on penstock.door_note (door_id, message_id, entry);
create index door_note_at on penstock.door_note (door_id, at);

-- Messages deleted from a message table by a transaction that has not ended: its archive row says how they ended.
create table penstock.door_removal (
    door_id integer not null references penstock.door on delete cascade,
    seq     bigint not null,
    primary key (door_id, seq)
);

create type penstock.message_status as enum ('success', 'failed', 'rejected', 'lock_expired');

-- Whether there is a schema of the LISTEN/NOTIFY conventions on a queue, whose workers have to be told of its messages.
alter table penstock.queue add column announces boolean not null default false;
