#!/bin/sh
# Writes tgad-VERSION.tgz into this folder, for npm install. Where the compiler that package-lock.json
# names is not installed, it installs that first.
set -eu
cd "$(dirname "$0")"
[ -e node_modules/.bin/tsc ] || npm ci --ignore-scripts --no-audit --no-fund
rm -rf dist
npm run build
npm pack --ignore-scripts
