"""What the operator is started with: flags, each with an environment variable."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill_operator.resources.settings import Defaults


@dataclass(frozen=True)
class Options:
    """`namespaces` empty means all. `identity` names this replica."""

    command: str
    namespaces: tuple[str, ...]
    operator_namespace: str
    identity: str
    lease: str
    port: int
    log_level: str
    defaults: Defaults


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Options of the command line; a flag wins over its variable."""
    found = _parser(environment).parse_args(arguments)
    return Options(
        command=found.command,
        namespaces=tuple(name.strip() for name in found.namespaces.split(",") if name.strip()),
        operator_namespace=found.operator_namespace,
        identity=found.identity,
        lease=found.lease,
        port=found.port,
        log_level=found.log_level.upper(),
        defaults=Defaults(
            gateway_image=found.gateway_image,
            driver_role=found.driver_role,
            has_network_policies=found.network_policies.lower() == "true",
            has_open_metrics=found.open_gateway_metrics.lower() == "true",
        ),
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    stock = Defaults()
    parser = argparse.ArgumentParser(prog="tidemill-operator", description="Runs Tidemill modules on Kubernetes.")
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "release"),
        default="run",
        help="run: reconcile until stopped. release: take our finalizers off all Modules (before an uninstall).",
    )
    flags = (
        ("namespaces", "TIDEMILL_NAMESPACES", "", "namespaces to serve, comma separated; empty: all"),
        ("gateway-image", "TIDEMILL_GATEWAY_IMAGE", stock.gateway_image, "image of stock gateways"),
        ("driver-role", "TIDEMILL_DRIVER_ROLE", stock.driver_role, "ClusterRole that drivers are bound to"),
        ("network-policies", "TIDEMILL_NETWORK_POLICIES", "true", "whether to make NetworkPolicies: true or false"),
        ("open-gateway-metrics", "TIDEMILL_OPEN_GATEWAY_METRICS", "false", "/metrics of gateways needs no token: true"),
        ("operator-namespace", "POD_NAMESPACE", "default", "namespace of the operator's own Lease"),
        ("identity", "POD_NAME", socket.gethostname(), "name of this replica"),
        ("lease", "TIDEMILL_LEASE", "tidemill-operator", "name of the operator's own Lease"),
        ("log-level", "TIDEMILL_LOG_LEVEL", "INFO", "least level of log lines"),
    )
    for flag, variable, default, text in flags:
        parser.add_argument(f"--{flag}", default=environment.get(variable, default), help=f"{text} ({variable})")
    port = int(environment.get("TIDEMILL_PORT", "8080"))
    parser.add_argument("--port", type=int, default=port, help="metrics, /healthz, /readyz; 0: none (TIDEMILL_PORT)")
    return parser
