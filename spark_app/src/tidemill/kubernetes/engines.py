"""Where a driver's attempts run: Spark with executors as pods, or this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidemill.kubernetes.api import ClusterApi
from tidemill.spark.deferred_runner import Engine
from tidemill.spark.given_settings import read_settings
from tidemill.spark.on_kubernetes import POD_LABEL, DriverPod
from tidemill.values.errors import BadInput


def engine_opener(engine: str, conf: Path, name: str, pod: DriverPod, api: ClusterApi) -> Callable[[], Engine]:
    """What opens the engine; settings are read and checked now.

    Raises:
        BadInput: there is no such engine, or the settings cannot be.
    """
    if engine == "local":
        return _open_local
    if engine != "spark":
        raise BadInput(f"There is no engine '{engine}'; use spark or local.")
    settings = read_settings(conf, name, pod)

    def open_spark() -> Engine:
        from tidemill.spark.runner import SparkRunner
        from tidemill.spark.session import shared_session, stop_shared_session

        if settings.kubernetes is not None:
            # A container that was restarted in this pod: the executors of the one before serve nobody.
            api.delete_pods({POD_LABEL: pod.uid})
        runner = SparkRunner(settings)
        application = str(shared_session(settings).context.applicationId)
        return Engine(runner, application, runner.has_workers, stop_shared_session, lambda: runner.facts)

    return open_spark


def _open_local() -> Engine:
    from tidemill.local.runner import LOCAL, LocalRunner

    return Engine(LocalRunner(), facts=lambda: LOCAL)
