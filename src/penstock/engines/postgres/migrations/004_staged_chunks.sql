-- What a sink has put aside lies in chunks of many messages, which are written without a log: they need not outlive a
-- crash, as long as it is noticed that they are gone.
drop table penstock.staged;
create unlogged table penstock.staged (
    queue_id     integer not null,
    key          text not null,
    part         text not null,
    ordinal      integer not null,
    priority     integer,                            -- of plain messages; null when there are options
    content_type text,                               -- of all of them, unless they have types of their own
    types        text[],
    options      jsonb,
    payloads     bytea[] not null,
    primary key (queue_id, key, part, ordinal)
);
-- Compressing takes longer than writing.
alter table penstock.staged alter column payloads set storage external;

-- A part that is whole, with as many chunks.
create table penstock.staged_part (
    queue_id  integer not null,
    key       text not null,
    part      text not null,
    staged_at bigint not null,
    chunks    integer not null,
    primary key (queue_id, key, part)
);
