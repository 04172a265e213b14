-- Ids that were chosen by the sender, or given while the message was held.

-- Register an id that does not follow from a position; false when the queue has the message already.
create or replace function penstock._register_id(q penstock.queue, _id uuid, _position bigint, _held_id bigint) returns boolean
language plpgsql as $$
begin
    if _position is not null and (penstock._locate_message(q, _id)).is_found then
        return false;
    end if;
    insert into penstock.identity (queue_id, id, position, held_id) values (q.queue_id, _id, _position, _held_id)
    on conflict (queue_id, id) do nothing;
    return found;
end
$$;

-- Refuse a second payload under the same id instead of dropping it; the same payload is the same send.
create or replace function penstock._check_same_payload(q penstock.queue, _id uuid, _payload bytea, _content_type text)
returns void
language plpgsql as $$
declare
    sent record;
begin
    select f.payload, f.content_type into sent from penstock.find(q.name, _id) as f;
    if sent.payload <> _payload
        and penstock.payload_jsonb(sent.payload, sent.content_type) <> penstock.payload_jsonb(_payload, _content_type) then
        raise exception using errcode = 'unique_violation',
            message = format('message %s of queue %s was sent before with another payload', _id, penstock._quote_value(q.name)),
            hint = 'Nothing was sent. A new message needs an id of its own; the same payload again is the same send.';
    end if;
end
$$;

-- Locate a message by its id: at a position, or held. The message may only exist with a retry or a dead letter.
create or replace function penstock._locate_message(
    q penstock.queue, _id uuid, out is_found boolean, out "position" bigint, out held_id bigint
)
language plpgsql stable as $$
#variable_conflict use_column
declare
    _position bigint := ('x' || right(_id::text, 12))::bit(48)::bigint;
    _created_at bigint;
begin
    is_found := true;
    position := _position;
    for _created_at in
        -- With an offset: a planner that has no statistics would look for the position in each transaction of a lane.
        select m.created_at
        from (select o.* from penstock.log as o where o.position = _position and o.id is null offset 0) as m
        join penstock.lane as l using (lane_id)
        where l.queue_id = q.queue_id and m.position > q.trimmed_position
        union all
        select d.created_at from penstock.dead_letter as d where d.queue_id = q.queue_id and d.position = _position and d.id is null
        union all
        select t.created_at from penstock.group as g join penstock.tracked as t using (group_id)
        where g.queue_id = q.queue_id and t.position = _position and t.id is null
    loop
        if penstock.made_id(_created_at, _position) = _id then
            return;
        end if;
    end loop;
    select i.position, i.held_id into position, held_id from penstock.identity as i
    where i.queue_id = q.queue_id and i.id = _id;
    is_found := found;
end
$$;
