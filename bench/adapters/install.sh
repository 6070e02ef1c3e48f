#!/usr/bin/env bash
# Installs what the adapters start: PostgreSQL 15 from Debian, and the server of Restate from npm, in the
# directory that is given, beside the adapters.
set -euo pipefail
bin=${1:?the directory of the adapters}
bash "$(dirname "$0")/../../engine/postgres/install.sh"
[ -x "$bin/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server" ] && exit 0
npm install --silent --no-save --no-package-lock --prefix "$bin" @restatedev/restate-server-linux-x64@1.7.12
