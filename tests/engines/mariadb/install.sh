#!/bin/sh
# Puts the MariaDB server of Debian in place, where it is missing, and its mysqlclient, which has no wheels. The tests
# start servers of their own and leave the service of the package alone. Where they cannot be had, this is said, and the
# tests that need them are skipped.
set -eu

if [ -x /usr/sbin/mariadbd ] && [ -d /usr/lib/python3/dist-packages/MySQLdb ]; then exit 0; fi

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Not installed: mariadb-server, python3-mysqldb (needs root and apt-get): their tests are skipped." >&2
    exit 0
fi
install() {
    # A package that starts a service would take the usual port.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends mariadb-server \
        python3-mysqldb >/dev/null
}
install || { apt-get -qq update && install; } ||
    echo "Not installed: mariadb-server, python3-mysqldb (apt-get failed): tests of the MariaDB engine are skipped." >&2
