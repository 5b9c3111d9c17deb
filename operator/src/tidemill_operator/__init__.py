"""The Tidemill operator: turns Modules and Topologies into drivers, gateways and what they need.

Layers (import-linter): handlers > reconcile > observe | decide | apply > resources. `resources` are pure builders (dict
in, dict out), `decide` is pure, only `apply` speaks to the API server, only `handlers` know kopf.
"""

VERSION = "0.1.0"
