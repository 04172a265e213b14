#!/bin/sh
# Puts pyright in place, from npm, where it is missing. Without Node.js its tests say that they are skipped.
set -eu
cd "$(dirname "$0")/node"

if ! command -v npm >/dev/null; then
    echo "Not installed: Node.js and npm, so programs of users are not checked with pyright." >&2
elif [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    npm ci --silent || echo "Not installed: pyright (npm failed): its tests are skipped." >&2
fi
