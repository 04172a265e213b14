-- The dead signal.

-- The dead signal: a WARNING in the server log, and a notification.
create or replace function penstock._notify_dead(
    q penstock.queue, g penstock.group, msg penstock.message_row, _state text, _reason text
) returns void
language plpgsql as $$
begin
    raise warning using errcode = 'PN900', message = format(
        'dead letter in queue %s, group %s, position %s, %s%s', penstock._quote_value(q.name), penstock._quote_value(g.name), msg.position,
        _state, ': ' || penstock._quote_value(_reason)
    );
    perform penstock._send_notification('penstock_dead', json_build_object(
        'queue', q.name, 'group', g.name, 'id', coalesce(msg.id, penstock.made_id(msg.created_at, msg.position)),
        'outcome', _state, 'reason', left(_reason, 1000)
    )::text);
    if q.announces and g.name is not distinct from q.primary_group then
        perform penstock._compat_notify_dead(q.queue_id, msg.position, _state);
    end if;
end
$$;
