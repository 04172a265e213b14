-- Who sweeps: many processes ask, one does it.

-- When somebody last set out to sweep. A sequence, because it is written every second and must leave no dead rows behind.
create sequence if not exists penstock.swept_at as bigint minvalue 0 start 0;

-- Whether nobody has claimed a pass for that long; if so, it is claimed. A clock that was set back must not stop the
-- sweeps until it has caught up.
create or replace function penstock.claim_sweep(every_seconds double precision) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _now bigint := penstock.now_us();
    _again boolean;
begin
    for _again in values (false), (true) loop
        if exists (
            select from penstock.swept_at as s
            where _now >= s.last_value and _now - s.last_value < every_seconds * 1000000
        ) then
            return false;
        end if;
        -- Asking takes no lock; who claims looks again when no other can.
        if not _again and not pg_try_advisory_xact_lock(hashtextextended('penstock.claim_sweep', 0)) then
            return false;
        end if;
    end loop;
    perform setval('penstock.swept_at', _now);
    return true;
end
$$;
