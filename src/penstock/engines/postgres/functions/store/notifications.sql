-- NOTIFY: waking receivers that wait for a queue.

-- Notify receivers that wait for the queue, unless nobody listens: commits with a NOTIFY are serialised across the
-- cluster.
create or replace function penstock._wake_receivers(_queue_id integer) returns void
language plpgsql as $$
begin
    if penstock._somebody_listens() then
        perform penstock._send_notification('penstock', _queue_id::text);
    end if;
end
$$;

-- Whether anybody listens. Listeners hold this lock in shared mode, so an exclusive lock cannot be acquired meanwhile.
-- It is released within the expression that acquires it; keep it one expression: a cancellation between statements
-- would leave a session lock behind that keeps listeners out.
create or replace function penstock._somebody_listens() returns boolean
language sql volatile as $$
    select case
        when pg_try_advisory_lock(7305793389475492353) then not pg_advisory_unlock(7305793389475492353)
        else true
    end
$$;

-- Send a notification, unless the transaction or session opted out (set local penstock.notify = off): a transaction
-- with a notification cannot be prepared for two-phase commit. Waiting clients poll as well.
create or replace function penstock._send_notification(_channel text, _payload text) returns void
language plpgsql as $$
begin
    if coalesce(current_setting('penstock.notify', true), '') not in ('off', 'false', 'no', '0') then
        perform pg_notify(_channel, _payload);
    end if;
end
$$;
