#!/usr/bin/env bash
# Builds wheels and sdists of both packages into the folder $1 (dist), without network: the build backend is in .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "${1:-dist}"
out="$(realpath "${1:-dist}")"
for package in . operator; do
  (cd "$package" && "$OLDPWD/.venv/bin/python" -m hatchling build -d "$out" >&2)
done
ls "$out"
