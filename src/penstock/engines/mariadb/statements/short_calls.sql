-- name: begin_part
-- In place of the begin of a transaction, where a call is a part of one.
savepoint penstock_part;

-- name: undo_part
-- In place of its rollback.
rollback to savepoint penstock_part;

-- name: known_reader
-- What calls in one packet rely on: a queue, the revision of its policy, its first lane, and one of its groups (the
-- named one, else the primary one).
select queue.queue_id, queue.revision, queue.policy,
    (
        select lane.lane_id from penstock_lane as lane
        where lane.queue_id = queue.queue_id and lane.priority = 0 and lane.shard = 0
    ),
    reader.group_id, reader.name
from penstock_queue as queue
join penstock_group as reader
    on reader.queue_id = queue.queue_id
    and reader.name = coalesce(
        :group,
        (select first.name from penstock_group as first where first.group_id = queue.primary_group_id),
        json_value(queue.policy, '$.primary_group'),
        'default'
    )
where queue.name = :queue and queue.primary_group_id is not null;

-- name: send_at_once
-- (new) -> ready for plain messages, in one packet. The answer is empty, and nothing is changed, when the policy is
-- another one, the queue needs a new block of positions, or messages of callers have to be appended first.
begin not atomic
    start transaction;
    update penstock_queue set last_position = (@penstock_last_position := last_position) + :count
    where queue_id = :queue_id and revision = :revision and last_position + :count <= block_end
        and not exists (select 1 from penstock_arrival as arrival where arrival.queue = :queue);
    if row_count() = 1 then
        set @penstock_time = coalesce(:now, timestampdiff(microsecond, '1970-01-01 00:00:00', utc_timestamp(6)));
        insert into penstock_log (position, lane_id, created_at, content_type, payload) values :rows;
        update penstock_run set last_position = @penstock_last_position + :count
        where lane_id = :lane_id and last_position = @penstock_last_position;
        if row_count() = 0 then
            insert into penstock_run (lane_id, last_position, first_position, `before`)
            select lane_id, @penstock_last_position + :count, @penstock_last_position + 1, sent
            from penstock_lane_end where lane_id = :lane_id;
        end if;
        commit;
        select @penstock_last_position + 1, @penstock_time;
    else
        rollback;
    end if;
end;

-- name: receive_at_once
-- ready -> leased for the next messages of a lane, in one packet. The answer is the messages, where there are any, then
-- the verdict and the token. The verdict is 1 when the receive is complete; 0, and nothing is changed, when the policy is
-- another one or the receive has more to do: something is due or has lapsed, the lane is read with checks, or messages
-- are to be taken from several runs. The commit is a statement of its own, so that the answer need not wait for it.
begin not atomic
    declare verdict, taken_lane, taken_priority, needs_checks, lane_end, taken_first, taken_last, new_token bigint;
    start transaction;
    update penstock_queue
    set last_entry = (@penstock_entry := last_entry + 1), trimmed_position = (@penstock_trimmed := trimmed_position)
    where queue_id = :queue_id and revision = :revision;
    if row_count() = 1 then
        set @penstock_time = coalesce(:now, timestampdiff(microsecond, '1970-01-01 00:00:00', utc_timestamp(6)));
        set @penstock_ends_at = @penstock_time + :lease;
        select 1 into verdict from penstock_group as reader
        where reader.group_id = :group_id and reader.stream_position is null
            and reader.used_at >= @penstock_time - :touch_every
            and not exists (select 1 from penstock_arrival as arrival where arrival.queue = :queue)
            and not exists (
                select 1 from penstock_held as held
                where held.queue_id = :queue_id and held.waiting = 0 and held.available_at <= @penstock_time
            )
            and not exists (
                select 1 from penstock_cursor as `cursor`
                where `cursor`.group_id = :group_id and `cursor`.lease_ends_at <= @penstock_time
            )
            and not exists (
                select 1 from penstock_tracked as retry where retry.group_id = :group_id and retry.state = 'ready'
            )
            and not exists (
                select 1 from penstock_tracked as held
                where held.group_id = :group_id and held.state = 'held' and held.until_at <= @penstock_time
            )
            and not exists (
                select 1 from penstock_tracked as leased
                where leased.group_id = :group_id and leased.state = 'leased' and leased.until_at <= @penstock_time
            )
            and not exists (select 1 from penstock_skip as skip where skip.group_id = :group_id)
            and not exists (select 1 from penstock_removed_consumer as removed where removed.group_id = :group_id);
    end if;
    if verdict = 1 then
        select straight_join lane.lane_id, lane.priority, lane.careful,
            (
                select ending.last_position from penstock_run as ending where ending.lane_id = lane.lane_id
                order by ending.last_position desc limit 1
            ),
            greatest(next.first_position, `cursor`.position + 1), next.last_position,
            greatest(@penstock_time, `cursor`.token + 1, :least_token)
        into taken_lane, taken_priority, needs_checks, lane_end, taken_first, taken_last, new_token
        from penstock_lane as lane
        left join penstock_cursor as `cursor` on `cursor`.group_id = :group_id and `cursor`.lane_id = lane.lane_id
        join penstock_run as next
            on next.lane_id = lane.lane_id
            and next.last_position = (
                select unread.last_position from penstock_run as unread
                where unread.lane_id = lane.lane_id and unread.last_position > coalesce(`cursor`.position, 0)
                order by unread.last_position limit 1
            )
        where lane.queue_id = :queue_id and lane.priority >= 0
        order by lane.priority, lane.shard
        limit 1;
        if taken_lane is null then
            set new_token = null;
        elseif needs_checks = 1 or new_token is null or taken_first <= @penstock_trimmed or (
            taken_last - taken_first + 1 < :limit and (
                taken_last < lane_end
                or (select count(*) from penstock_lane where queue_id = :queue_id and priority >= 0) > 1
            )
        ) then
            set verdict = 0, new_token = null;
        end if;
    end if;
    if new_token is null then
        rollback;
    else
        set taken_last = least(taken_last, taken_first + :limit - 1);
        insert into penstock_lease (token, first_position, last_position, group_id, lane_id, consumer, ends_at)
        values (new_token, taken_first, taken_last, :group_id, taken_lane, :consumer, @penstock_ends_at);
        update penstock_cursor
        set passed = passed + taken_last - taken_first + 1, position = taken_last, token = new_token,
            lease_ends_at = least(coalesce(lease_ends_at, @penstock_ends_at), @penstock_ends_at)
        where group_id = :group_id and lane_id = taken_lane;
        insert into penstock_audit (
            queue_id, entry_id, last_position, first_position, group_id, at, event, state, `by`, attempt, token
        ) values (
            :queue_id, @penstock_entry, taken_last, taken_first, :group_id, @penstock_time, 'receive', 'leased',
            :consumer, 1, new_token
        );
        select position, created_at, id, content_type, headers, expires_at, deadline_at, address, `key`, null,
            created_by, payload, taken_priority, 1, @penstock_ends_at
        from penstock_log
        where position between taken_first and taken_last;
    end if;
    select coalesce(verdict, 0), coalesce(new_token, 0);
end;

-- name: ack_at_once
-- leased -> succeeded for ranges of first attempts ([token, first, last] as JSON), in one packet; what is left of a lease
-- stays leased. The answer is empty, and nothing is changed, when the policy is another one, a range is not leased as a
-- whole under its token, or its lane has addresses or batches. The variable has the type of the column: a varchar would
-- have the character set of the database.
begin not atomic
    declare holder type of penstock_lease.consumer;
    declare lease_first, lease_last, acked, asked bigint default 0;
    start transaction;
    update penstock_queue set last_entry = (@penstock_entry := last_entry) + :count
    where queue_id = :queue_id and revision = :revision;
    if row_count() = 1 then
        set @penstock_time = coalesce(:now, timestampdiff(microsecond, '1970-01-01 00:00:00', utc_timestamp(6)));
        for part in (
            select token, first_position, last_position
            from json_table(:ranges, '$[*]' columns (
                token bigint path '$[0]', first_position bigint path '$[1]', last_position bigint path '$[2]'
            )) as asked_range
        ) do
            set asked = asked + 1, holder = null;
            select lease.consumer, lease.first_position, lease.last_position into holder, lease_first, lease_last
            from penstock_lease as lease
            join penstock_lane as lane using (lane_id)
            where lease.group_id = :group_id and lease.first_position <= part.first_position
                and lease.last_position = (
                    select min(next.last_position) from penstock_lease as next
                    where next.group_id = :group_id and next.last_position >= part.last_position
                )
                and lease.token = part.token and lease.ends_at > @penstock_time and lane.careful = 0;
            if holder is not null then
                if lease_first < part.first_position then
                    insert into penstock_lease (token, first_position, last_position, group_id, lane_id, consumer, ends_at)
                    select token, first_position, part.first_position - 1, group_id, lane_id, consumer, ends_at
                    from penstock_lease where group_id = :group_id and last_position = lease_last;
                end if;
                if part.last_position < lease_last then
                    update penstock_lease set first_position = part.last_position + 1
                    where group_id = :group_id and last_position = lease_last;
                else
                    delete from penstock_lease where group_id = :group_id and last_position = lease_last;
                end if;
                insert into penstock_audit (
                    queue_id, entry_id, last_position, first_position, group_id, at, event, state, `by`, attempt, token
                ) values (
                    :queue_id, @penstock_entry + asked, part.last_position, part.first_position, :group_id,
                    @penstock_time, 'ack', 'succeeded', holder, 1, part.token
                );
                set acked = acked + 1 + part.last_position - part.first_position;
            end if;
        end for;
    end if;
    if acked = :messages then
        update penstock_group set succeeded = succeeded + acked where group_id = :group_id;
        commit;
        select 1;
    else
        rollback;
    end if;
end;
