"""Makes the class archive of the installed PySpark, `classes.jsa` beside its jars, unless it is there.

The JVMs of a few sessions, as Tidemill has them, list the classes that they load; Java archives those (class data
sharing). The archive is for this Java and these jars: another Java starts as if there were none. All this needs PySpark
alone, so that an image can make it before Tidemill is in it. `tidemill.spark.class_archive` tells how it is used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext

HOME = Path(os.path.realpath(pyspark.__path__[0]))
ARCHIVE = HOME / "classes.jsa"
SECONDS_MAX = 300
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -XX:-UsePerfData"
COMMON = {"spark.app.name": "classes", "spark.ui.port": "0", "spark.driver.host": "127.0.0.1"}
NO_CLUSTER = "k8s://http://127.0.0.1:1"
"""Nothing answers there. The classes with which a driver asks for pods are loaded before it is told so."""
POD = {"spark.kubernetes.container.image": "none", "spark.executor.instances": "1"}
MASTERS = ["local[1]", "local-cluster[1,1,1024]", NO_CLUSTER]


def main() -> None:
    if len(sys.argv) == 3:
        run(sys.argv[1], Path(sys.argv[2]))
    elif not is_fit():
        with tempfile.TemporaryDirectory() as name:
            for master in MASTERS:
                lists(master, Path(name))
            dump(Path(name))
        assert is_fit(), f"Java does not take the archive that it made: {ARCHIVE}"
    sys.stdout.write(f"{ARCHIVE}\n")


def is_fit() -> bool:
    """Whether there is an archive, and it is for this Java and these jars."""
    command = [java(), "-Xshare:on", *JVM.split(), f"-XX:SharedArchiveFile={ARCHIVE}", "-cp", jars(), "-version"]
    return ARCHIVE.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def jars() -> str:
    """The class path that comes first wherever the archive is used."""
    return ":".join(map(str, sorted((HOME / "jars").glob("*.jar"))))


def lists(master: str, folder: Path) -> None:
    """A session in a process of its own: Python has one JVM."""
    command = [sys.executable, __file__, master, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode:
        sys.exit(f"No session with master {master}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def run(master: str, folder: Path) -> None:
    """A job as Tidemill has them: Python functions over RDDs, and a shuffle."""
    # Nothing leaves this machine, and the name of a container under construction resolves to nothing.
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(COMMON.items()))
    for process in ("driver", "executor"):
        listed = folder / f"{process}-{MASTERS.index(master)}"
        conf.set(f"spark.{process}.extraJavaOptions", f"{JVM} -XX:DumpLoadedClassList={listed}")
    if master == NO_CLUSTER:
        conf.setAll(list(POD.items()))
        try:
            SparkContext(conf=conf)
        except Py4JJavaError:
            return
        sys.exit(f"Something answers at {NO_CLUSTER}.")
    context = SparkContext(conf=conf)
    pairs = context.parallelize(range(100), 2).map(lambda number: (number % 3, number))
    assert pairs.reduceByKey(lambda a, b: a + b, 2).count() == 3
    context.stop()


def dump(folder: Path) -> None:
    """The archive is there only once it is whole."""
    found = [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
    classes = folder / "classes"
    # Left out: comments, lambdas of the sessions that ran (@), and classes of other loaders, which have a source.
    # Numbers behind a name are those of one session.
    named = (line.split(" id: ")[0] for line in found if line[:1] not in "#@" and " source: " not in line)
    classes.write_text("\n".join(dict.fromkeys(named)) + "\n")
    made = folder / ARCHIVE.name
    command = [java(), "-Xshare:dump", *JVM.split(), f"-XX:SharedClassListFile={classes}"]
    command += [f"-XX:SharedArchiveFile={made}", "-cp", jars()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode:
        sys.exit(f"Java made no archive:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    partial = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    shutil.copyfile(made, partial)
    partial.replace(ARCHIVE)


main()
