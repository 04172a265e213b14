-- A moment was noted with the end of a snapshot, beyond which a transaction may have sent already: what was decided by it, and
-- written down as finished, may not be. Both are noted again; what is finished now leaves when its history has passed anew.
delete from penstock.moment;
delete from penstock.finished;

-- Rows are deleted all the time. Vacuum comes when a twentieth of them is dead, and does not hold back: else a busy queue
-- with a short history writes faster than its room is cleaned.
alter table penstock.log set (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_threshold = 1000,
    toast.autovacuum_vacuum_cost_delay = 0
);
alter table penstock.claim set (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
alter table penstock.step set (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
