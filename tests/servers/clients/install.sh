#!/bin/sh
# Puts the programs in place that the server is tested with, where they are missing: redis-cli and redis-server from
# Debian, ioredis and node-redis from npm. What cannot be had here is named, and its tests say that they are skipped.
set -eu
cd "$(dirname "$0")/node"

missing=""
command -v redis-cli >/dev/null || missing="$missing redis-tools"
command -v redis-server >/dev/null || missing="$missing redis-server"
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        # A package that starts a service would take the usual port; the tests start their own.
        # shellcheck disable=SC2086 # a list of names
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null || {
            apt-get -qq update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null
        } || echo "Not installed:$missing (apt-get failed): tests that need them are skipped." >&2
    else
        echo "Not installed:$missing (needs root and apt-get): tests that need them are skipped." >&2
    fi
fi

if ! command -v npm >/dev/null; then
    echo "Not installed: Node.js and npm, so ioredis and node-redis are not tested." >&2
elif [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    npm ci --silent || echo "Not installed: ioredis and node-redis (npm failed): their tests are skipped." >&2
fi
