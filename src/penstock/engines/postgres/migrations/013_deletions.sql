-- What had to stay when it was first looked at is looked at again, from the start, apart from what comes newly.
alter table penstock.deletion
    add column again_tx   xid8 not null default '0',    -- how far messages were looked at again
    add column again_seq  bigint not null default 0,
    add column again_upto bigint not null default 0;    -- how far claims or steps were
