#!/usr/bin/env bash
# Prints the folder with the jars of an Apache Kafka broker for tests, fetched once from Maven Central into the cache. kafka-jars.sha256
# names each of them with its checksum: it is written anew by `bash scripts/kafka.sh --lock`.
set -euo pipefail
cd "$(dirname "$0")"
version=4.1.1
cache="${TIDEMILL_CACHE:-$HOME/.cache/tidemill}/kafka"

fetch() { # folder: the broker with all that it runs with
  if ! command -v mvn >/dev/null; then
    echo "Installing maven, which fetches Apache Kafka ..." >&2
    root=$([ "$(id -u)" = 0 ] || echo sudo)
    $root apt-get update -qq >&2
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >/dev/null
  fi
  mkdir -p "$1"
  cat >"$1/pom.xml" <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidemill</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
END
  mvn -B -q -f "$1/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$1/jars" >&2
}

if [ "${1:-}" = --lock ]; then
  new="$(mktemp -d)"
  trap 'rm -rf "$new"' EXIT
  fetch "$new"
  (cd "$new/jars" && sha256sum -- *.jar) >kafka-jars.sha256
  exit
fi

jars="$cache/$version-$(cksum <kafka-jars.sha256 | tr ' ' '-')"
if [ ! -d "$jars" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock 9 # two at once would fetch it twice
  if [ ! -d "$jars" ]; then
    echo "Fetching Apache Kafka $version (43 MB, once) ..." >&2
    new="$(mktemp -d "$cache/new-XXXXXX")"
    trap 'rm -rf "$new"' EXIT
    fetch "$new"
    list="$PWD/kafka-jars.sha256"
    (cd "$new/jars" && sha256sum --quiet --check "$list" && [ "$(ls | wc -l)" = "$(wc -l <"$list")" ]) >&2 ||
      { echo "The jars of Apache Kafka are not those of scripts/kafka-jars.sha256." >&2; exit 1; }
    mv "$new/jars" "$jars"
  fi
fi
echo "$jars"
