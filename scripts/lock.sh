#!/usr/bin/env bash
# Writes the lock files anew, each package with the hashes of its files: what pyproject.toml declares, at the versions that are locked
# already where they still fit. `bash scripts/lock.sh --upgrade` takes the newest versions.
set -euo pipefail
cd "$(dirname "$0")/.."

uv="$(bash scripts/supply.sh uv)"
compile=("$uv" pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate "$@")

"${compile[@]}" scripts/requirements-supply.in -o scripts/requirements-supply.txt
"${compile[@]}" scripts/requirements-docs.in -o scripts/requirements-docs.txt
"${compile[@]}" images/requirements-build.in -o images/requirements-build.txt
# The flights of the examples are read by Polars; the package that carries them asks for pandas only to offer them as its frames.
"${compile[@]}" --extra dev --no-emit-package tidemill --no-emit-package pandas pyproject.toml -o requirements.lock
.venv/bin/python -m e2e.images pin
