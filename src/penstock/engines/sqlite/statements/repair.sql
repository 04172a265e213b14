-- name: reached_positions
-- Positions up to which something was read or trimmed.
select max(stream_position) from penstock_group where stream_table = 'messages' and stream_position is not null
having count(*) > 0
union all
select max(number) from penstock_trimmed where kind = 'messages' having count(*) > 0;

-- name: reached_entries
-- Audit entries up to which something was read or trimmed.
select max(stream_position) from penstock_group where stream_table = 'audit' and stream_position is not null
having count(*) > 0
union all
select max(number) from penstock_trimmed where kind = 'audit' having count(*) > 0
union all
select max(entry_id) from penstock_trail having count(*) > 0;
