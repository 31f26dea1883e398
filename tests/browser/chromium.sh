#!/usr/bin/env bash
# Installs Chromium where there is none that tests/browser/chromium.py finds, and says which is used:
# Debian's package where this user may install one, else the build that Playwright downloads.
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${1:-python3}"

found() { "$python" -m tests.browser.chromium; }

as_root() {
  if [[ "$(id -u)" == 0 ]]; then "$@"; else sudo --non-interactive "$@"; fi
}

from_debian() {
  command -v apt-get >/dev/null && as_root true 2>/dev/null || return 1
  as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
}

from_playwright() { "$python" -m playwright install chromium; }

found && exit
# Ubuntu's package of that name only starts a snap, so what was installed is looked for again.
from_debian >&2 && found && exit
from_playwright >&2 && found && exit
echo "Chromium could not be installed: install it by hand, or set CHROMIUM to its path." >&2
exit 1
