"""The one SparkContext of a process: started on first use, shared by all topologies, gone at exit.

A `Session` is thread-safe: topologies run their jobs side by side, each from its own thread and under its own job
group.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any

import cloudpickle
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from tidemill.engine.work import EngineFacts
from tidemill.journal.clock import SystemClock
from tidemill.plan.program import Program
from tidemill.spark.given_settings import given_settings
from tidemill.spark.jvm import Stages
from tidemill.spark.settings import SparkSettings, spark_conf, worker_environment
from tidemill.spark.worker import ShippedProgram, warm_worker
from tidemill.values import errors

FOLDER_PREFIX = "tidemill-spark-"
PROGRAMS_KEPT = 16
EXECUTORS_WAIT_MS = 300_000
WARMED_AT_ONCE = 64
LOCATIONS_SECONDS = 5.0
JAVA_MISSING = (
    "Spark needs a Java runtime, version 17 or newer, and none was found: install one "
    "(Debian and Ubuntu: apt-get install default-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME."
)


class Session:
    """A running SparkContext, workers that are warmed when they are asked for, and the programs that they know."""

    def __init__(self, settings: SparkSettings) -> None:
        """Takes about three seconds and starts a JVM.

        Raises:
            BadInput: there is no Java, or the settings do not start a context.
            EngineUnavailable: on Kubernetes, it did not start or its executors did not come; try again.
        """
        self.settings = settings
        self.folder = make_folder()
        self._lock = threading.Lock()
        self._pools = threading.local()
        self._locations: tuple[float, list[str]] = (float("-inf"), [])
        self._programs: OrderedDict[str, _Shipment] = OrderedDict()
        self.context = _start_context(settings, self.folder)
        self.facts = EngineFacts(f"Spark {self.context.version}, {settings.master}", self.context.uiWebUrl or "")
        self.stages = Stages(self.context, sys.executable, worker_environment())
        self._is_warm = self._is_numbered_warm = False
        try:
            self._await_executors()
        except errors.EngineUnavailable:
            self.stop()
            raise

    @property
    def slots(self) -> int:
        """How many tasks run at once now; changes as executors come and go."""
        return max(1, int(self.context.defaultParallelism))

    @property
    def slots_max(self) -> int:
        """How many tasks run at once when all executors are there that may come for work that waits."""
        place = self.settings.kubernetes
        return self.slots if place is None else max(self.slots, place.executors.count_max * place.executors.cores)

    @property
    def slots_of_executor(self) -> int:
        """How many tasks an executor runs at once."""
        place = self.settings.kubernetes
        return self.slots if place is None else place.executors.cores

    def locations(self) -> list[str]:
        """The executors that there were some seconds ago at most, as `Stages.base_at` takes them; none in one JVM."""
        if self.settings.kubernetes is None:
            return []
        with self._lock:
            now = time.monotonic()
            if now - self._locations[0] >= LOCATIONS_SECONDS:
                self._locations = (now, self.stages.locations())
            return self._locations[1]

    @property
    def executors(self) -> int:
        """How many executors are registered now; the driver itself does not count."""
        return int(self.context._jsc.sc().getExecutorMemoryStatus().size()) - 1

    def _await_executors(self) -> None:
        """Raises: EngineUnavailable: too few executors registered in time."""
        clock, never = SystemClock(), threading.Event()
        deadline = clock.monotonic_ms() + EXECUTORS_WAIT_MS
        while self.executors < self.settings.executors:
            if clock.monotonic_ms() > deadline:
                raise errors.EngineUnavailable(
                    f"{self.executors} of {self.settings.executors} executors registered within "
                    f"{EXECUTORS_WAIT_MS / 1000:g} s: look at their pods; the cluster may have no room for them."
                )
            clock.wait(never, 50)

    def warm(self) -> None:
        """Starts a Python worker in every slot and imports there what steps need, so that no microbatch pays for it;
        once. Raises BadInput: the workers cannot import Tidemill.
        """
        if not self._is_warm:
            self._warm_up(self.slots, None)
            self._is_warm = True

    def warm_numbered(self) -> None:
        """As `warm`, for the workers that tasks ask for by their number."""
        if not self._is_numbered_warm:
            with ThreadPoolExecutor(WARMED_AT_ONCE) as pool:
                list(pool.map(partial(self._warm_up, 1), (n % self.slots_of_executor for n in range(self.slots))))
            self._is_numbered_warm = True

    def _warm_up(self, partitions: int, worker: int | None) -> None:
        stage = self.stages.python_stage(self.stages.base(partitions), warm_worker, worker=worker)
        try:
            self.stages.collect(stage)
        except Py4JJavaError as error:
            reason = _python_error(error)
            self.stop()
            raise errors.BadInput(f"Spark's Python workers cannot import Tidemill: {reason}") from error

    @property
    def is_alive(self) -> bool:
        """Whether the JVM answers and its context was not stopped."""
        try:
            return not self.context._jsc.sc().isStopped()
        except (Py4JError, OSError, AttributeError):
            return False

    def ship(self, program: Program) -> ShippedProgram:
        """Sends a program to the workers once; later calls for the same key only name it."""
        return self._shipment(program).reference

    def broadcasts(self, program: Program) -> Any:
        """The Java list that a stage of this program needs."""
        return self._shipment(program).java_list

    def _shipment(self, program: Program) -> _Shipment:
        with self._lock:
            found = self._programs.get(program.key)
            if found is None:
                found = self._programs[program.key] = _Shipment(self, program)
                if len(self._programs) > PROGRAMS_KEPT:
                    self._programs.popitem(last=False)
            self._programs.move_to_end(program.key)
            return found

    def enter_group(self, group: str, pool: str) -> None:
        """Jobs that this thread submits from now on belong to `group` (for `cancel`) and share the cores fairly
        with other pools.
        """
        if getattr(self._pools, "name", None) != pool:
            self.context.setLocalProperty("spark.scheduler.pool", pool)
            self._pools.name = pool
        self.context.setJobGroup(group, group, interruptOnCancel=True)

    def cancel(self, group: str) -> None:
        """Ends the jobs of a group; Python code that hangs is killed some 2 seconds later."""
        with contextlib.suppress(Py4JError, OSError):
            self.context.cancelJobGroup(group)

    def running_stage(self, group: str) -> int | None:
        """Which stage of the group's newest job runs, counted from its first; None if none does.

        Stages are numbered from the first that others wait for to the last.
        """
        tracker = self.context.statusTracker()
        active = set(tracker.getActiveStageIds())
        for job in sorted(tracker.getJobIdsForGroup(group), reverse=True):
            found = tracker.getJobInfo(job)
            running = [n for n, stage in enumerate(sorted(found.stageIds if found else ())) if stage in active]
            if running:
                return running[0]
        return None

    def stop(self) -> None:
        """Stops the context and removes its files; harmless when repeated or when the JVM is gone."""
        with contextlib.suppress(Exception):
            self.context.stop()
        _end_gateway()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Shipment:
    """A program as a broadcast variable."""

    def __init__(self, session: Session, program: Program) -> None:
        paths = tuple(sys.path) if session.settings.is_local else ()
        self.broadcast = session.context.broadcast((paths, cloudpickle.dumps(program)))
        self.reference = ShippedProgram(program.key, int(self.broadcast._jbroadcast.id()))
        self.java_list = session.stages.broadcasts(self.broadcast)


# --- the shared one
# --------------------------------------------------------------------------------------------------

_shared_lock = threading.Lock()
_shared: Session | None = None


def shared_session(settings: SparkSettings | None = None, *, is_numbered: bool = False) -> Session:
    """The session of this process, started if there is none or if its JVM died; without `settings` any will do. Its
    workers are warm, or, with `is_numbered`, those that tasks ask for by their number.

    Raises:
        BadInput: no Java, a session with another master runs, or a SparkContext that is not ours.
    """
    global _shared
    with _shared_lock:
        if _shared is not None and not _shared.is_alive:
            _shared.stop()
            _shared = None
        if _shared is None:
            _shared = Session(settings or given_settings())
        if settings is not None and _shared.settings.master != settings.master:
            raise errors.BadInput(
                f"Spark runs as {_shared.settings.master} in this process already, {settings.master} was asked for: "
                "use one master a process, or stop its clusters and call tidemill.spark.session.stop_shared_session()."
            )
        if is_numbered:
            _shared.warm_numbered()
        else:
            _shared.warm()
        return _shared


def stop_shared_session() -> None:
    """Ends Spark in this process; the next use starts it again."""
    global _shared
    with _shared_lock:
        if _shared is not None:
            _shared.stop()
            _shared = None


atexit.register(stop_shared_session)


# --- starting
# --------------------------------------------------------------------------------------------------------


def _start_context(settings: SparkSettings, folder: Path) -> SparkContext:
    if SparkContext._active_spark_context is not None:
        raise errors.BadInput("A SparkContext that Tidemill did not start is active in this process: stop it first.")
    require_java()
    conf = SparkConf(loadDefaults=False)
    for key, value in spark_conf(settings, folder).items():
        conf.set(key, value)
    with _kept_signal(), _environment(_process_environment(settings)), _log_stream(settings, folder) as log:
        try:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})
            return SparkContext(conf=conf, gateway=gateway)
        except (PySparkRuntimeError, Py4JJavaError) as error:
            reason = _reason(error, folder)  # the JVM is asked for it
            _end_gateway()
            kind = errors.EngineUnavailable if settings.kubernetes is not None else errors.BadInput
            raise kind(f"Spark did not start with master {settings.master}: {reason}") from error


def _process_environment(settings: SparkSettings) -> dict[str, str]:
    environment = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_PIN_THREAD": "true"}
    if settings.is_local:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


def require_java() -> None:
    """Raises BadInput, with advice, where neither JAVA_HOME nor PATH has a `java`."""
    home = os.environ.get("JAVA_HOME")
    if (home and os.access(Path(home) / "bin" / "java", os.X_OK)) or shutil.which("java"):
        return
    raise errors.BadInput(JAVA_MISSING)


def _reason(error: Exception, folder: Path) -> str:
    """The innermost cause that the JVM wrote, else its last lines, or the first line of the exception."""
    log = folder / "spark.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    if any("UnsupportedClassVersionError" in line for line in lines):
        return JAVA_MISSING.replace("none was found", "the one found is older")
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return " | ".join(causes[-1:] or lines[-5:]) or _java_error(error)


def _java_error(error: Exception) -> str:
    """The line that says why in a Java exception: the innermost cause."""
    try:
        lines = str(error).splitlines()
    except (Py4JError, OSError):
        return type(error).__name__
    causes = [line.strip() for line in lines if line.startswith("Caused by: ")]
    return (causes or [line for line in lines[1:] if line.strip()] or lines)[-1 if causes else 0].strip(": ")


def _python_error(error: Py4JJavaError) -> str:
    """The last line of the Python traceback in a Java exception."""
    found = re.findall(r"^(\w[\w.]*(?:Error|Exception): .*)$", str(error), re.MULTILINE)
    return found[0] if found else str(error).splitlines()[0]


@contextlib.contextmanager
def _log_stream(settings: SparkSettings, folder: Path) -> Iterator[IO[Any]]:
    if settings.log == "stderr":
        yield sys.__stderr__ or sys.stderr
        return
    path = Path(settings.log) if settings.log else folder / "spark.log"
    with path.open("ab") as stream:
        yield stream


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Variables for the JVM that is about to start; ours only where the user set none."""
    missing = {key: value for key, value in values.items() if key not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for key in missing:
            os.environ.pop(key, None)


@contextlib.contextmanager
def _kept_signal() -> Iterator[None]:
    """`pyspark` takes over Ctrl-C where it is started from the main thread; the program that uses us had a handler
    of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)


def _end_gateway() -> None:
    """Ends the JVM, which `SparkContext.stop` leaves running for a next context with the same memory and options."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    if gateway is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()


def make_folder() -> Path:
    """A temporary folder whose name holds its process, so that what a killed one left is found and removed."""
    parent = Path(tempfile.gettempdir())
    for left in parent.glob(f"{FOLDER_PREFIX}*"):
        owner = re.match(rf"{FOLDER_PREFIX}(\d+)-", left.name)
        if owner and left.stat().st_uid == os.getuid() and not _is_running(int(owner[1])):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
