#!/usr/bin/env bash
# Makes .venv with everything pinned, and sees to a Java runtime and the few programs that tests call. Does nothing when
# all is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else return 1; fi; }
fail() { echo "$1" >&2; exit 1; }

updated=""
update_lists() { # purpose: what apt knows is asked for only afterwards, since a fresh machine has no lists at all
  command -v apt-get >/dev/null ||
    fail "tidemill needs $1: install it with your system's package manager, then run this again."
  [ -z "$updated" ] || return 0
  as_root apt-get update -qq || fail "tidemill needs $1, and apt-get cannot install it: see above, or run this with sudo."
  updated=yes
}

newest() { # package...: the first that apt can install, judged by its candidate: `apt-cache show` also knows mere mentions
  local package candidate
  for package in "$@"; do
    candidate="$(apt-cache policy "$package" | sed -n 's/^ *Candidate: *//p')"
    case "$candidate" in "" | "(none)") ;; *) echo "$package"; return ;; esac
  done
}

install_one() { # purpose package...: the first of these packages that there is
  local purpose=$1 package; shift
  update_lists "$purpose"
  package="$(newest "$@")"
  [ -n "$package" ] || fail "tidemill needs $purpose, but apt-get has none of $*: install it by hand."
  echo "Installing $package for $purpose ..." >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
    fail "apt-get could not install $package: see above."
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.14 python3.13 python3.12 python3.11 python3; do
    command -v "$candidate" >/dev/null || continue
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$candidate"; return; }
  done
  return 1
}

ensure_python() {
  python="$(find_python)" || { install_one "Python 3.11 or newer" python3.14 python3.13 python3.12 python3.11 python3
    python="$(find_python)" || fail "tidemill needs Python 3.11 or newer; set PYTHON to one."; }
  "$python" -c 'import ensurepip, venv' 2>/dev/null && return
  install_one "Python's venv module" "${python##*/}-venv" python3-venv
  "$python" -c 'import ensurepip, venv' || fail "$python still has no venv module: set PYTHON to one that has."
}

java_major() { "$1" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p'; }
has_java() {
  local java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
  command -v "$java" >/dev/null && [ "$(java_major "$java")" -ge 17 ] 2>/dev/null
}

ensure_java() {
  has_java && return
  install_one "a Java runtime (17 or newer)" openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless
  has_java || fail "tidemill needs Java 17 or newer, and ${JAVA_HOME:+JAVA_HOME=$JAVA_HOME, }java on the PATH is not."
}

ensure_programs() {
  command -v pgrep >/dev/null || install_one "pgrep, which tests call" procps
  command -v curl >/dev/null || install_one "curl, with which tests try the examples of HTTP" curl
}

ensure_venv() {
  local python stamp
  stamp="$(cat requirements.lock images/requirements-build.txt pyproject.toml | cksum | tr ' ' '-')"
  [ "$(cat .venv/.tidemill-stamp 2>/dev/null)" = "$stamp" ] && return
  ensure_python
  [ -x .venv/bin/python ] && [ -x .venv/bin/pip ] || "$python" -m venv --clear .venv
  echo "Installing Python packages into .venv (a minute the first time) ..." >&2
  local install=(.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps)
  "${install[@]}" --require-hashes -r images/requirements-build.txt
  # What is built here is built by the packages above: a build that fetched its own would fetch them without hashes.
  "${install[@]}" --no-build-isolation --require-hashes -r requirements.lock
  "${install[@]}" --no-build-isolation -e .
  echo "$stamp" > .venv/.tidemill-stamp
}

ensure_java
ensure_programs
ensure_venv
