-- Addresses: at most one live message for each.

-- The live message of an address; null when it has expired, even if that was not recorded yet.
create or replace function penstock._live_message_at(q penstock.queue, _address text, _now bigint) returns uuid
language sql stable as $$
    select a.id from penstock.address as a
    where a.queue_id = q.queue_id and a.address = _address and a.outcome is null and not penstock._is_address_expired(q, a, _now)
$$;

create or replace function penstock._is_address_expired(q penstock.queue, a penstock.address, _now bigint) returns boolean
language sql stable as $$
    select coalesce(
        (
            select coalesce(t.expires_at <= _now, false)
            from penstock.tracked as t where t.group_id = q.primary_group_id and t.position = a.position
        ),
        (select m.expires_at <= _now from penstock.log as m where m.position = a.position),
        (
            select h.expires_at <= _now
            from penstock.identity as i join penstock.held as h using (held_id)
            where i.queue_id = q.queue_id and i.id = a.id
        ),
        false
    )
$$;

create or replace function penstock._refuse_address(q penstock.queue, _address text, _existing uuid) returns void
language plpgsql as $$
begin
    raise exception using errcode = 'PN202', detail = coalesce(_existing::text, ''), message = format(
        'address %s of queue %s already has the live message %s', penstock._quote_value(_address), penstock._quote_value(q.name),
        _existing
    );
end
$$;

-- Assign the address to this message; refused while another message is live there. Concurrent sends wait for each other
-- at the row.
create or replace function penstock._reserve_address(
    q penstock.queue, _address text, _id uuid, _position bigint, _now bigint
) returns void
language plpgsql as $$
begin
    if q.primary_group is null then
        raise exception using errcode = 'PN100', message = format(
            'queue %s has no primary group: address %s has no owner', penstock._quote_value(q.name), penstock._quote_value(_address)
        );
    end if;
    insert into penstock.address as a (queue_id, address, id, position) values (q.queue_id, _address, _id, _position)
    on conflict (queue_id, address) do update
    set id = excluded.id, position = excluded.position, outcome = null, reason = null, ended_at = null
    where a.outcome is not null or a.id = excluded.id or penstock._is_address_expired(q, a, _now);
    if not found then
        perform penstock._refuse_address(q, _address, penstock._live_message_at(q, _address, _now));
    end if;
end
$$;
