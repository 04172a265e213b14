-- A schema of other conventions is known by its oid, which nobody but PostgreSQL can give. Oids have a meaning in one
-- database of one cluster only, so the row says which. Both are null while no schema is bound to the row: after the
-- upgrade to this version and after a restore, until `penstock migrate` has found the schema.
alter table penstock.door drop constraint door_schema_name_key;
alter table penstock.door
    add column schema_oid oid unique,
    add column home text;
