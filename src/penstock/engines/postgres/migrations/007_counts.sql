-- No message in the snapshot counted lies beyond this position: who looks for the newest ones begins here. Of messages
-- that were sent before, only the end of the log is known.
alter table penstock.lane add column last bigint not null default 0;
update penstock.lane set last = coalesce(pg_sequence_last_value('penstock.position'), 0);

-- How many dead letters a group has, up to what was folded in by a sweep. Counting them anew for every look takes the
-- longer the more there are.
alter table penstock.reader add column dead bigint not null default 0;

-- Dead letters that came or went since: one row for each statement. Only appended to by those who make letters or take
-- them away, so that nobody waits for anybody; the sweep moves them into the group's count, a transaction sees them in
-- one of both places.
create table penstock.dead_change (
    group_id integer not null,
    n        integer not null                        -- less than 0 for letters that went
);
create index dead_change_group on penstock.dead_change (group_id);

-- From here on nobody makes a letter that is not written down: the trigger is there when this transaction ends.
lock table penstock.dead_letter in share row exclusive mode;
update penstock.reader as g set dead = counted.n
from (select group_id, count(*) as n from penstock.dead_letter group by group_id) as counted
where counted.group_id = g.group_id;
