#!/usr/bin/env bash
# Builds the documentation's site into dist/docs, without network once its tools are in the cache; what is wrong with a page is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdocs="$(bash scripts/supply.sh mkdocs docs)"
.venv/bin/python scripts/site_pages.py dist/docs-source >&2
NO_MKDOCS_2_WARNING=1 "$mkdocs" build --config-file dist/mkdocs.yml --strict --quiet "$@"
echo dist/docs/index.html
