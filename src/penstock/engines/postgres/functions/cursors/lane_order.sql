-- The order in which a consumer visits the lanes of a queue.

-- The rank of a shard in the order in which a consumer visits the shards of a priority: its home shard first, then
-- around the ring. An unregistered consumer starts anywhere.
create or replace function penstock._shard_turn(_group_id integer, _consumer text, _shard integer, _shards integer)
returns integer
language plpgsql stable as $$
declare
    _birth integer;
    _living integer;
begin
    if _shards = 1 then
        return _shard;
    end if;
    select count(*) filter (where other.consumer_id < self.consumer_id), count(*) into _birth, _living
    from penstock.consumer as self
    join penstock.consumer as other using (group_id)
    where self.group_id = _group_id and self.name = _consumer;
    if _living = 0 then
        _birth := ('x' || substr(md5(_consumer || pg_backend_pid()), 1, 7))::bit(28)::integer % _shards;
        _living := 1;
    end if;
    return case when _shard % _living = _birth % _living then 0 else _shards end
        + ((_shard - _birth) % _shards + _shards) % _shards;
end
$$;

-- The lanes with unread messages in the order in which a consumer visits them: lane, priority, and 1 or 2 for its first
-- or second turn.
create or replace function penstock._lane_turns(
    _queue_id integer, _group_id integer, _consumer text, _shards integer, _trimmed_position bigint
) returns integer[]
language sql volatile as $$
    select array_agg(array[lane_id, priority, turn] order by priority, turn, place)
    from (
        select *, penstock._shard_turn(_group_id, _consumer, shard, _shards) as place
        from penstock.lane
        where queue_id = _queue_id and priority >= 0 and penstock._has_unread(_group_id, lane_id, _trimmed_position)
    ) as n
    cross join generate_series(1, 2) as turn
$$;
