-- Messages deleted from a message table stay here after their transaction while their archive row may still come: then
-- they have the time of the deletion, and the time of their send, by which the row is found.
alter table penstock.compat_removal add column removed_at bigint, add column created_at bigint;
