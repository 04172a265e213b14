"""Programs of the LISTEN/NOTIFY conventions for a quarter of an hour, on a server with a real pg_cron."""
