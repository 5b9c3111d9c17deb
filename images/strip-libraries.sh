#!/bin/sh
# Removes from a virtual environment what only builders and testers of its packages use: headers, test suites, type stubs
# of compiled modules.
set -eu
find "$1" -depth -type d \( -name include -o -name tests \) -path '*site-packages*' -exec rm -rf {} +
find "$1" -type f \( -name '*.pxd' -o -name '*.pyx' -o -name '*.a' \) -delete
