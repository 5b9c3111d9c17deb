#!/bin/sh
# Prints the path of a Chromium for tests of the page: the one on the PATH, else Debian's, which is installed here (root or sudo),
# with the library that Playwright's own program needs and not every Debian's Chromium brings.
set -eu

browser() {
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null 2>&1 && { command -v "$name"; return; }
    done
    return 1
}
missing=""
browser >/dev/null || missing="chromium"
for folder in /lib /usr/lib /lib64 /usr/lib64; do
    for found in "$folder"/libatomic.so.1 "$folder"/*/libatomic.so.1; do [ ! -e "$found" ] || has_atomic=yes; done
done
[ -n "${has_atomic:-}" ] || missing="$missing libatomic1"
[ -n "$missing" ] || { browser; exit 0; }
command -v apt-get >/dev/null 2>&1 || {
    echo "Tests of the page need Chromium and libatomic: install them with your system's package manager, then run this again." >&2
    exit 1
}
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
echo "Installing $missing for tests of the page ..." >&2
as_root apt-get update -qq >&2
# shellcheck disable=SC2086 # several packages
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
browser
