#!/bin/sh
# Puts the MariaDB server of Debian in place, where it is missing. The tests start servers of their own and leave the
# service of the package alone. Where it cannot be had, this is said, and the tests of the engine are skipped.
set -eu

[ ! -x /usr/sbin/mariadbd ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Not installed: mariadb-server (needs root and apt-get): tests of the MariaDB engine are skipped." >&2
    exit 0
fi
install() {
    # A package that starts a service would take the usual port.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends mariadb-server >/dev/null
}
install || { apt-get -qq update && install; } ||
    echo "Not installed: mariadb-server (apt-get failed): tests of the MariaDB engine are skipped." >&2
