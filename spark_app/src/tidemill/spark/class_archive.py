"""The class archive of the installed PySpark, where there is one.

A JVM of Spark loads thousands of classes when it starts. From an archive it maps them, already parsed and checked, and
so starts with a third less computing (docs/performance.md). The runner image has one, which `scripts/class_archive.py`
made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark

ARCHIVE = "classes.jsa"
"""Its name, beside the folder of jars."""


def archived(conf: Mapping[str, str], processes: tuple[str, ...]) -> dict[str, str]:
    """Spark settings with which the JVMs of `processes` ("driver", "executor") use the archive; none without one.

    A JVM takes an archive only if its class path begins with the jars in the order in which they were archived. Where
    `conf` has a class path of the user, which must come first, the archive stays unused.
    """
    home = Path(os.path.realpath(os.environ.get("SPARK_HOME") or pyspark.__path__[0]))
    archive, folder = home / ARCHIVE, home / "jars"
    # Of an archive of other jars a JVM would take nothing, and not even Java's own in its place.
    if not archive.is_file() or archive.stat().st_mtime < folder.stat().st_mtime:
        return {}
    jars = ":".join(map(str, sorted(folder.glob("*.jar"))))
    found = {}
    for process in processes:
        path, options = f"spark.{process}.extraClassPath", f"spark.{process}.extraJavaOptions"
        if path not in conf:
            found[path] = jars
            found[options] = f"{conf.get(options, '')} -XX:SharedArchiveFile={archive}".strip()
    return found
