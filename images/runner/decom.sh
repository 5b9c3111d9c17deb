#!/bin/bash
# Spark's preStop hook of executors: ask the executor to hand its blocks over, then wait until it is gone. The pod's grace
# period ends the wait; waiting longer than the executor lives would only delay the pod's end.
set -euo pipefail

executor="$(pgrep -o -f 'java.*KubernetesExecutorBackend' || true)"
[ -n "$executor" ] || exit 0
kill -s PWR "$executor"
exec timeout "${TIDEMILL_DECOMMISSION_SECONDS:-60}" tail --pid="$executor" -f /dev/null
