#!/usr/bin/env bash
# Makes .venv with everything pinned, and sees to a Java runtime. Does nothing when all is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else return 1; fi; }

install_packages() { # what-for package...
  local purpose=$1; shift
  if ! command -v apt-get >/dev/null; then
    echo "tidemill needs $purpose: install it with your system's package manager, then run this again." >&2; exit 1
  fi
  echo "Installing $* for $purpose ..." >&2
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
    command -v "$candidate" >/dev/null || continue
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$candidate"; return; }
  done
  echo "tidemill needs Python 3.11 or newer; set PYTHON to one." >&2; exit 1
}

java_major() { java -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p'; }

ensure_java() {
  local java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
  command -v "$java" >/dev/null && [ "$(java_major)" -ge 17 ] 2>/dev/null && return
  local package
  for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    if apt-cache show "$package" >/dev/null 2>&1; then break; fi
  done
  install_packages "a Java runtime (17 or newer)" "$package"
}

ensure_venv() {
  local python stamp
  stamp="$(cat requirements.lock images/requirements-build.txt pyproject.toml | cksum | tr ' ' '-')"
  [ "$(cat .venv/.tidemill-stamp 2>/dev/null)" = "$stamp" ] && return
  python=$(find_python)
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    install_packages "Python's venv module" python3-venv
  fi
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  echo "Installing Python packages into .venv (a minute the first time) ..." >&2
  local install=(.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps)
  "${install[@]}" --require-hashes -r images/requirements-build.txt
  # What is built here is built by the packages above: a build that fetched its own would fetch them without hashes.
  "${install[@]}" --no-build-isolation --require-hashes -r requirements.lock
  "${install[@]}" --no-build-isolation -e .
  echo "$stamp" > .venv/.tidemill-stamp
}

ensure_java
ensure_venv
