"""Chooses what runs a topology's drivers: a Deployment of ours, or a SparkApplication of the kubeflow operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_operator.resources import driver
from tidemill_operator.resources.names import Json
from tidemill_operator.resources.revision import Revision


def launched(module: Mapping[str, Any], topology: Mapping[str, Any], revision: Revision) -> Json:
    """The object that runs the drivers of this topology at this revision."""
    is_application = revision.template.get("spark", {}).get("launcher") == "SparkApplication"
    if is_application and driver.engine_of(revision.template) == "spark":
        from tidemill_operator.resources.spark_application import application  # its models take a second to import

        return application(module, topology, revision)
    return driver.deployment(module, topology, revision)
