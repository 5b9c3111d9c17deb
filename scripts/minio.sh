#!/bin/sh
# Prints the path of a MinIO server for tests: the one on the PATH, else one built once from its Go module into a cache.
# MinIO publishes no binaries any more for this version, so Go builds it; the cache is outside the checkout and survives it.
set -eu

version=v0.0.0-20260212201848-7aac2a2c5b7c
cache="${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/bin"
binary="$cache/minio-$version"

if command -v minio >/dev/null 2>&1; then
    command -v minio
    exit 0
fi
if [ ! -x "$binary" ]; then
    mkdir -p "$cache"
    go="$(sh "$(dirname "$0")/go.sh")" || {
        echo "Tests on S3 need a MinIO server: put minio on the PATH, or install Go to build it." >&2
        exit 1
    }
    echo "Building MinIO from its Go module (some minutes, once) ..." >&2
    build="$(mktemp -d "$cache/build-XXXXXX")"
    trap 'rm -rf "$build"' EXIT
    GOBIN="$build" CGO_ENABLED=0 GOGC="${GOGC:-400}" "$go" install -trimpath -ldflags "-s -w" "github.com/minio/minio@$version" >&2
    mv "$build/minio" "$binary" # in one step, so that two builds at once cannot leave half a binary
fi
echo "$binary"
