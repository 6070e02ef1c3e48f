#!/usr/bin/env bash
# Installs what the tests of this module look at packages with, from Debian. They need root, and a Linux
# that can mount an overlay.
set -euo pipefail
need=()
for program in systemd-nspawn:systemd-container umoci:umoci skopeo:skopeo rpm:rpm lintian:lintian logrotate:logrotate mandoc:mandoc fish:fish zsh:zsh openssl:openssl man:man-db; do
  command -v "${program%:*}" >/dev/null || need+=("${program#*:}")
done
[ ${#need[@]} -gt 0 ] || exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends "${need[@]}"
