-- Queues and their lanes: looking them up and making them.

-- Get a queue, or create it on first use.
create or replace function penstock._ensure_queue(_name text) returns penstock.queue
language plpgsql as $$
declare
    q penstock.queue;
begin
    loop
        select * into q from penstock.queue where name = _name;
        exit when found;
        -- One that somebody else makes just now may be deleted before it is read.
        insert into penstock.queue (name, created_at) values (_name, penstock.now_us()) on conflict (name) do nothing;
    end loop;
    return q;
end
$$;

-- Get a queue; an error when it does not exist.
create or replace function penstock._get_queue(_name text) returns penstock.queue
language plpgsql as $$
declare
    q penstock.queue;
begin
    select * into q from penstock.queue where name = _name;
    if not found then
        raise exception using errcode = 'PN300', message = format('there is no queue %s', penstock._quote_value(_name)),
            detail = 'queue';
    end if;
    return q;
end
$$;

-- Get or create the lane of a priority and a shard.
create or replace function penstock._ensure_lane(_queue_id integer, _priority integer, _shard integer) returns integer
language plpgsql as $$
declare
    _lane_id integer;
begin
    select lane_id into _lane_id from penstock.lane
    where queue_id = _queue_id and priority = _priority and shard = _shard;
    if not found then
        insert into penstock.lane (queue_id, priority, shard) values (_queue_id, _priority, _shard)
        on conflict (queue_id, priority, shard) do nothing
        returning lane_id into _lane_id;
        if not found then
            select lane_id into _lane_id from penstock.lane
            where queue_id = _queue_id and priority = _priority and shard = _shard;
        end if;
    end if;
    return _lane_id;
end
$$;

-- Whether the queue has held, unread or leased messages or retries.
create or replace function penstock._has_live_messages(q penstock.queue) returns boolean
language sql stable as $$
    select exists (select 1 from penstock.held where queue_id = q.queue_id)
        or exists (
            select 1 from penstock.group as g
            where g.queue_id = q.queue_id and g.stream_mark is null and (
                exists (select 1 from penstock.lease as l where l.group_id = g.group_id)
                or exists (select 1 from penstock.tracked as t where t.group_id = g.group_id)
                or exists (
                    select 1 from penstock.lane as l
                    where l.queue_id = q.queue_id and l.priority >= 0
                        and penstock._has_unread(g.group_id, l.lane_id, q.trimmed_position)
                )
            )
        )
$$;
