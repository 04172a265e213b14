-- The stack trace of the last error, for as long as the message waits for another attempt or is a dead letter.
alter table penstock_tracked add column trace text;
alter table penstock_dead_letter add column trace text;
