-- One receive, as the functions that it consists of hand it on.
create type penstock.receive_call as (
    queue_id         integer,
    group_id         integer,                        -- null if the group does not exist
    group_name       text,
    used_at          bigint,
    stream_mark      text,
    cluster          text,                           -- the system identifier of the store
    delivery         text,
    ordered          boolean,
    paused           boolean,
    shards           integer,
    lanes            integer,                        -- 2 stands for several
    lane_id          integer,                        -- of the only lane, as is its priority
    priority         integer,
    consumer         text,
    most             integer,                        -- messages to hand out
    lease_seconds    double precision,
    is_brief         boolean,                        -- the transaction ends with the receive
    trimmed_position bigint,
    has_retries      boolean,                        -- some may be ready
    has_skips        boolean,
    now              bigint,
    token            bigint,
    ends_at          bigint,                         -- of the lease
    checked_at       bigint,                         -- leases that had ended by then were reclaimed
    fresh            pg_snapshot,                    -- the end of the next window
    own              xid8                            -- the transaction of the receive, if it has written anything
);
