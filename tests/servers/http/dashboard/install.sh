#!/bin/sh
# Puts Chromium in place, in which the dashboard is tested, where it is missing. If it cannot be had here, that is said,
# and the tests that need it say that they are skipped.
set -eu

if ! command -v chromium >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null || {
            apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null
        } || echo "Not installed: chromium (apt-get failed): tests in a browser are skipped." >&2
    else
        echo "Not installed: chromium (needs root and apt-get): tests in a browser are skipped." >&2
    fi
fi
