#!/usr/bin/env bash
# Prints the path of a program beside the product, installed once into the cache with its hashes: of the supply chain (uv, pip-audit,
# cyclonedx-py), or with a second word `docs` of the documentation's site (mkdocs).
set -euo pipefail
cd "$(dirname "$0")"
group="${2:-supply}"
# An environment of another Python does not run here, so the key tells the Python, too.
python="$(../.venv/bin/python -c 'import sys; print(sys.version, sys.base_prefix)')"
key="$({ cat "requirements-$group.txt"; echo "$python"; } | cksum | tr ' ' '-')"
tools="${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/$group-$key"
if [ ! -e "$tools/complete" ]; then
  ../.venv/bin/python -m venv --clear "$tools"
  "$tools/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r "requirements-$group.txt" >&2
  touch "$tools/complete"
fi
echo "$tools/bin/$1"
