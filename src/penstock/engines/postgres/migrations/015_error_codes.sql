-- The code of the error for which a consumer gave a message up.
alter table penstock.step add column code text;
