-- name: cluster_status
-- The state of a node of a Galera cluster. Other servers of MariaDB have a cluster of size 0, MySQL has no such rows.
show status where variable_name in ('wsrep_cluster_size', 'wsrep_ready');

-- name: read_latest
-- Transactions see everything that has been committed on any node of the cluster before they began. A statement of a
-- transaction that a conflict has ended must fail: by default the node would make it again, outside of a transaction.
set session wsrep_sync_wait = 1, wsrep_retry_autocommit = 0;

-- name: read_applied
-- Transactions see what the node has applied, without asking the other nodes.
set session wsrep_sync_wait = 0;

-- name: cluster_lock_queue
-- The nodes compare the rows that transactions change, not those that they lock: so locking a row changes it.
update penstock_queue set locks = locks + 1 where name = :name;

-- name: cluster_batch_queues
-- The same for the queues of a batch.
update penstock_queue set locks = locks + 1
where queue_id = :queue_id
    or queue_id in (select other.queue_id from penstock_batch_queue as other where other.batch_id = :batch_id)
order by queue_id;

-- name: cluster_newest_batch
-- The same for the newest batch of a name.
update penstock_batch set locks = locks + 1
where queue_id = :queue_id and name = :name
order by batch_id desc
limit 1;

-- name: cluster_next_batch
-- The same for the first batch of a name after a number.
update penstock_batch set locks = locks + 1
where queue_id = :queue_id and name = :name and batch_id > :after
order by batch_id
limit 1;

-- name: cluster_find_batch
-- The same for one batch.
update penstock_batch set locks = locks + 1 where batch_id = :batch_id;

-- name: cluster_ledger_entry
-- The same for the ledger.
update penstock_store set value = value + 1 where name = 'ledger';

-- name: check_transaction
-- Fail (1242) when the transaction has ended.
do (select two.one from (select 1 as one union all select 2) as two where not @@in_transaction);
