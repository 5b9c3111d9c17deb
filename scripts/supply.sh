#!/usr/bin/env bash
# Prints the path of a program for the supply chain (uv, pip-audit, cyclonedx-py), installed once into the cache with its hashes.
set -euo pipefail
cd "$(dirname "$0")"
key="$(cksum < requirements-supply.txt | tr ' ' '-')"
tools="${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/supply-$key"
if [ ! -e "$tools/complete" ]; then
  ../.venv/bin/python -m venv --clear "$tools"
  "$tools/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r requirements-supply.txt >&2
  touch "$tools/complete"
fi
echo "$tools/bin/$1"
