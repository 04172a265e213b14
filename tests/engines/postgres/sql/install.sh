#!/bin/sh
# Puts a PostgreSQL server with pg_cron and plpgsql_check in place, where it is missing: 15, the oldest that Penstock
# supports, from Debian; and PgBouncer. The tests start clusters of their own and leave the one of the package alone. What cannot be had here is named, and
# its tests say that they are skipped.
set -eu

missing=""
[ -x /usr/lib/postgresql/15/bin/initdb ] || missing="postgresql-15"
[ -e /usr/lib/postgresql/15/lib/pg_cron.so ] || missing="$missing postgresql-15-cron"
[ -e /usr/lib/postgresql/15/lib/plpgsql_check.so ] || missing="$missing postgresql-15-plpgsql-check"
[ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Not installed: $missing (needs root and apt-get): tests that need them are skipped." >&2
    exit 0
fi
install() {
    # A package that starts a service would take the usual port.
    # shellcheck disable=SC2086 # a list of names
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null
}
install || { apt-get -qq update && install; } ||
    echo "Not installed: $missing (apt-get failed): tests that need them are skipped." >&2
