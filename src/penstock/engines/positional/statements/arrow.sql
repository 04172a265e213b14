-- name: read_messages
-- Messages of a queue after a position, for windows; payloads and headers only when requested.
select /*! straight_join */
    log.position, log.id, log.created_at, lane.priority, lane.shard, log.content_type, iif(:headers, log.headers, null),
    log.expires_at, log.deadline_at, log.address, log."key", batch.name, log.created_by, log.available_at,
    iif(:payload, log.payload, null)
from penstock_log as log
cross join penstock_lane as lane using (lane_id)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where log.position > :after and log.position <= :last and lane.queue_id = :queue_id and lane.priority >= 0
order by log.position
limit :limit;

-- name: read_plain_messages
-- The same for plain messages, which most are: fewer columns are read much faster. The first column is set for a
-- message that has more than a payload.
select /*! straight_join */
    log.id is not null or log.headers is not null or log.expires_at is not null or log.deadline_at is not null
        or log.address is not null or log."key" is not null or log.batch_id is not null or log.created_by is not null
        or log.available_at is not null,
    log.position, log.created_at, lane.priority, lane.shard, log.content_type, iif(:payload, log.payload, null)
from penstock_log as log
cross join penstock_lane as lane using (lane_id)
where log.position > :after and log.position <= :last and lane.queue_id = :queue_id and lane.priority >= 0
order by log.position
limit :limit;

-- name: read_archive
-- Messages by outcome and group, in the order of ending, after a place in that order.
select /*! straight_join */
    log.position, log.id, log.created_at, lane.priority, lane.shard, log.content_type, iif(:headers, log.headers, null),
    log.expires_at, log.deadline_at, log.address, log."key", batch.name, log.created_by, log.available_at,
    iif(:payload, log.payload, null),
    audit.entry_id, reader.name, audit.state, audit.reason, audit.attempt, audit."by", audit.at
from penstock_audit as audit
cross join penstock_log as log
    on log.position between
        iif(audit.entry_id = :after_entry, greatest(audit.first_position, :after + 1), audit.first_position)
        and audit.last_position
cross join penstock_lane as lane using (lane_id)
left join penstock_group as reader on reader.group_id = audit.group_id
left join penstock_batch as batch on batch.batch_id = log.batch_id
where audit.entry_id >= :after_entry and audit.entry_id <= :last and audit.queue_id = :queue_id
    and audit.first_position > 0 and audit.state not in ('held', 'ready', 'leased')
order by audit.entry_id, log.position
limit :limit;

-- name: read_plain_archive
-- The same for plain messages.
select /*! straight_join */
    log.id is not null or log.headers is not null or log.expires_at is not null or log.deadline_at is not null
        or log.address is not null or log."key" is not null or log.batch_id is not null or log.created_by is not null
        or log.available_at is not null,
    log.position, log.created_at, lane.priority, lane.shard, log.content_type, iif(:payload, log.payload, null),
    audit.entry_id, reader.name, audit.state, audit.reason, audit.attempt, audit."by", audit.at
from penstock_audit as audit
cross join penstock_log as log
    on log.position between
        iif(audit.entry_id = :after_entry, greatest(audit.first_position, :after + 1), audit.first_position)
        and audit.last_position
cross join penstock_lane as lane using (lane_id)
left join penstock_group as reader on reader.group_id = audit.group_id
where audit.entry_id >= :after_entry and audit.entry_id <= :last and audit.queue_id = :queue_id
    and audit.first_position > 0 and audit.state not in ('held', 'ready', 'leased')
order by audit.entry_id, log.position
limit :limit;

-- name: read_audit
-- Audit entries per message, in order, after a place in that order.
select /*! straight_join */ log.position, log.id, log.created_at,
    audit.entry_id, reader.name, audit.state, audit.reason, audit.attempt, audit."by", audit.at, audit.event,
    audit.token
from penstock_audit as audit
cross join penstock_log as log
    on log.position between
        iif(audit.entry_id = :after_entry, greatest(audit.first_position, :after + 1), audit.first_position)
        and audit.last_position
left join penstock_group as reader on reader.group_id = audit.group_id
where audit.entry_id >= :after_entry and audit.entry_id <= :last and audit.queue_id = :queue_id
    and audit.first_position > 0
order by audit.entry_id, log.position
limit :limit;

-- name: read_dead_letters
-- Dead letters of all groups in the order of the log, after a place in that order.
select /*! straight_join */
    log.position, log.id, log.created_at, lane.priority, lane.shard, log.content_type, iif(:headers, log.headers, null),
    log.expires_at, log.deadline_at, log.address, log."key", batch.name, log.created_by, log.available_at,
    iif(:payload, log.payload, null),
    reader.group_id, reader.name, dead.outcome, dead.reason, dead.attempts, dead.died_at
from penstock_dead_letter as dead
cross join penstock_group as reader using (group_id)
cross join penstock_log as log using (position)
cross join penstock_lane as lane using (lane_id)
left join penstock_batch as batch on batch.batch_id = log.batch_id
where reader.queue_id = :queue_id and (dead.position, dead.group_id) > (:after, :after_entry) and dead.position <= :last
order by dead.position, dead.group_id
limit :limit;
