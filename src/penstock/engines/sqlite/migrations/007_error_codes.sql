-- The code of the error for which a consumer gave a message up.
alter table penstock_audit add column code text;
