-- Finds the members of a batch in the log. Messages without a batch are not in it.
create index penstock_log_batch on penstock_log (batch_id) where batch_id is not null;
