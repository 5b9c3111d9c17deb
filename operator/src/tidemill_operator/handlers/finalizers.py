"""Takes our finalizers off every Module, so that nothing hangs after an uninstall. The data stays."""

from __future__ import annotations

import logging

from tidemill_operator.apply.lightkube_api import LightkubeApi
from tidemill_operator.handlers.options import Options
from tidemill_operator.resources import names

log = logging.getLogger(__name__)


async def release(options: Options) -> int:
    """The exit code."""
    api = LightkubeApi()
    try:
        for namespace in options.namespaces or (None,):
            for module in await api.list("Module", namespace):
                if names.FINALIZER in module["metadata"].get("finalizers", ()):
                    await api.apply(_without_finalizer(module))
                    log.info("released", extra={"module": f"{names.namespace_of(module)}/{names.name_of(module)}"})
    finally:
        await api.close()
    return 0


def _without_finalizer(module: names.Json) -> names.Json:
    kept = {key: module["metadata"][key] for key in ("name", "namespace", "uid")}
    return {"apiVersion": names.API_VERSION, "kind": "Module", "metadata": {**kept, "finalizers": []}}
