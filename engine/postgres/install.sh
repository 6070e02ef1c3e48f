#!/usr/bin/env bash
# Installs what the tests of this module start: PostgreSQL 15. Debian's package makes a cluster
# of its own, which nobody needs here, unless it is told not to.
set -euo pipefail
[ -x /usr/lib/postgresql/15/bin/initdb ] && exit 0
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends postgresql-15
