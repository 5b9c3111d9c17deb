"""What the operator's own installation decides about the objects it makes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Defaults:
    """`gateway_image` is the stock gateway; `driver_role` the ClusterRole that each Module's drivers are bound to;
    `has_open_metrics`: /metrics of gateways needs no token. `cluster` is the uid of this cluster, empty if unknown.
    """

    gateway_image: str = "tidemill-gateway:0.1.0"
    driver_role: str = "tidemill-driver"
    has_network_policies: bool = True
    has_open_metrics: bool = False
    cluster: str = ""
