"""Stages as the JVM sees them, built with as few calls into it as possible.

`pyspark`'s own `RDD` looks classes up by name on each use and turns Python maps into Java ones entry by entry: 25
calls a stage, and records are pickled twice. Here classes are looked up once, a stage costs about five calls, and
records are opaque bytes on both sides.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any

from pyspark import SparkContext
from pyspark.cloudpickle import CloudPickler
from pyspark.serializers import NoOpSerializer
from pyspark.util import _load_from_socket

Task = Callable[[int, Iterable[bytes]], Iterable[bytes]]
"""What one Spark task runs: (partition, records) -> records."""
WORKER_VARIABLE = "TIDEMILL_WORKER"
"""Only tells pools of Python workers apart; nothing reads it."""
LOCATIONS_MAX = 1_000
"""Executors that come and go in the life of a driver, whose bases are kept."""


class Stages:
    """Makes stages of one SparkContext; safe to use from several threads.

    `environment` is the environment of Python workers; `python` the executable.
    """

    def __init__(self, context: SparkContext, python: str, environment: dict[str, str]) -> None:
        jvm = context._jvm
        self._context = context
        self._function = jvm.SimplePythonFunction
        self._python_rdd = jvm.PythonRDD
        self._value_of_pair = jvm.PythonRDD.valueOfPair
        self._pairwise_rdd = jvm.PairwiseRDD
        self._partitioner = jvm.PythonPartitioner
        self._array_list = jvm.java.util.ArrayList
        self._collect_and_serve = jvm.PythonRDD.collectAndServe
        self._to_seq = jvm.PythonUtils.toSeq
        self._pruned = jvm.org.apache.spark.rdd.PartitionPruningRDD.create
        self._python = python
        self._jvm = jvm
        self._environment = environment
        self._environments: dict[int | None, Any] = {}
        self._includes = self._array_list()
        self._no_broadcasts = self._array_list()
        self._partitioners: dict[int, Any] = {}
        self._bases: dict[int, Any] = {}
        self._bases_at: dict[str, Any] = {}
        self._selections: dict[range, Any] = {}

    def base(self, partitions: int) -> Any:
        """The RDD at which every job of this many partitions starts; it holds one empty record a partition."""
        found = self._bases.get(partitions)
        if found is None:
            records = self._array_list()
            for _ in range(partitions):
                records.add(bytearray())
            found = self._bases[partitions] = self._context._jsc.parallelize(records, partitions).rdd()
        return found

    def base_at(self, location: str | None) -> Any:
        """As `base`, of one partition, which runs on this executor if it is free, or on any other."""
        if location is None:
            return self.base(1)
        found = self._bases_at.get(location)
        if found is None:
            listed, records = self._array_list(), self._array_list()
            listed.add(location)
            records.add(self._jvm.scala.Tuple2(bytearray(), self._to_seq(listed)))
            context, tag = self._context._jsc.sc(), self._context._jsc.parallelize(self._array_list(), 1).classTag()
            if len(self._bases_at) >= LOCATIONS_MAX:
                self._bases_at.clear()
            found = self._bases_at[location] = context.makeRDD(self._to_seq(records), tag)
        return found

    def locations(self) -> list[str]:
        """The executors that there are now, without the driver, as `base_at` takes them."""
        listed = self._context._jsc.sc().statusStore().executorList(True)
        places = [(each.id(), each.hostPort()) for each in map(listed.apply, range(listed.size()))]
        return [f"executor_{address.rpartition(':')[0]}_{name}" for name, address in places if name != "driver"]

    def broadcasts(self, broadcast: Any) -> Any:
        """A Java list of one broadcast variable, for `python_stage`."""
        listed = self._array_list()
        listed.add(broadcast._jbroadcast)
        return listed

    def python_stage(self, parent: Any, task: Task, broadcasts: Any = None, worker: int | None = None) -> Any:
        """Runs `task` over each partition of `parent`; records are bytes in and out.

        Any free Python worker does it, or the one of this number: Spark has a pool of workers for each environment.
        """
        command = _pickle_command(task)
        function = self._function(
            bytearray(command), self._environment_of(worker), self._includes, self._python, self._context.pythonVer,
            self._no_broadcasts if broadcasts is None else broadcasts, self._context._javaAccumulator,
        )  # fmt: skip
        return self._python_rdd(parent, function, False, False)

    def shuffled(self, parent: Any, partitions: int) -> Any:
        """Sends records to partitions; `parent` yields alternately the destination (8 bytes, `pack_long`) and a
        payload.
        """
        pairs = self._pairwise_rdd(parent).asJavaPairRDD().partitionBy(self._partitioner_of(partitions))
        return self._value_of_pair(pairs).rdd()

    def collect(self, stage: Any) -> list[bytes]:
        """Runs the job and returns all records in partition order.

        They come through a socket of their own: answers of calls into the JVM leave it in pieces of 8 KB, and each
        answer that is longer waits 40 ms for the system to acknowledge the first piece.
        """
        with _load_from_socket(self._collect_and_serve(stage), NoOpSerializer()) as records:
            return list(records)

    def selected(self, stage: Any, partitions: range) -> Any:
        """Only these partitions of a stage, counted from 0; the others are not computed."""
        found = self._selections.get(partitions)
        if found is None:
            found = self._selections[partitions] = self._to_seq(list(partitions)).toSet()
        return self._pruned(stage, found)

    def forget(self, stage: Any) -> None:
        """Deletes the shuffle files that lead to `stage`; without it they pile up until the JVM's next full
        collection.
        """
        stage.cleanShuffleDependencies(False)

    def _environment_of(self, worker: int | None) -> Any:
        found = self._environments.get(worker)
        if found is None:
            more = {} if worker is None else {WORKER_VARIABLE: str(worker)}
            found = self._environments[worker] = _java_map(self._jvm, self._environment | more)
        return found

    def _partitioner_of(self, partitions: int) -> Any:
        found = self._partitioners.get(partitions)
        if found is None:
            found = self._partitioners[partitions] = self._partitioner(partitions, 0)
        return found


def _java_map(jvm: Any, values: dict[str, str]) -> Any:
    made = jvm.java.util.HashMap()
    for key, value in values.items():
        made.put(key, value)
    return made


def _pickle_command(task: Task) -> bytes:
    """What a worker unpickles: function, profiler, and the serializers of input and output."""
    buffer = io.BytesIO()
    CloudPickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump((task, None, NoOpSerializer(), NoOpSerializer()))
    return buffer.getvalue()
