"""A client of the HTTP gateway, with the handles that a test cluster gives: `Client(url).depot(module, "*words")`."""

from __future__ import annotations

from tidemill.client.client import Client
from tidemill.client.depot import DepotClient
from tidemill.client.pstate import PStateClient

__all__ = ["Client", "DepotClient", "PStateClient"]
