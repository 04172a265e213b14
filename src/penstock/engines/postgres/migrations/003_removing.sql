-- The last transaction of which a message was removed: the end of what can be read does not go back behind it.
alter table penstock.queue add column removed_tx xid8;
