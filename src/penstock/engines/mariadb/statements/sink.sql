-- name: next_staged_id
-- The first of 4 billion ids that no other stage has.
insert into penstock_block (queue_id) values (0);
select last_insert_id() << 32;

-- name: drop_stages
-- Delete the stages of a key, and abandoned ones; return their ranges.
select first_id, last_id from penstock_stage
where queue_id = :queue_id and (`key` = :key or staged_at < :before);
delete from penstock_stage where queue_id = :queue_id and (`key` = :key or staged_at < :before);
