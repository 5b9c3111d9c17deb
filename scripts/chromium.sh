#!/bin/sh
# Prints the path of a Chromium for tests of the page: the one on the PATH, else Debian's, which is installed here (root or sudo).
set -eu

for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && { command -v "$name"; exit 0; }
done
command -v apt-get >/dev/null 2>&1 || {
    echo "Tests of the page need Chromium: install it with your system's package manager, then run this again." >&2
    exit 1
}
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
echo "Installing chromium for tests of the page ..." >&2
as_root apt-get update -qq >&2
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
command -v chromium
