"""Exactly-once stream processing and its serving database as one Python class.

Everything that a user needs is importable from here. What a name needs is loaded when the name is first asked for, so
that a client or a command pays only for what it uses.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tidemill.values.errors import (
    ApiUnavailable,
    AttemptLost,
    AttemptTimeout,
    BadInput,
    BadPath,
    BudgetExceeded,
    Busy,
    CombinersDiffer,
    CorruptState,
    DefinitionError,
    DefinitionWarning,
    Deleted,
    DepotClosed,
    EngineUnavailable,
    ExternalUnavailable,
    Fault,
    Fenced,
    InvariantViolation,
    KeyReused,
    Managed,
    MicrobatchFails,
    MirrorBroken,
    ModuleExists,
    NeedsCode,
    NewerFormat,
    NotOneValue,
    NotSelectable,
    OptionError,
    OutcomeUnknown,
    OwnedByAnother,
    RecordRefused,
    RecordsTrimmed,
    RetryableError,
    SchemaMismatch,
    SchemaOutdated,
    SequenceUnknown,
    SnapshotExpired,
    StoreRefused,
    StoreRestored,
    StoreUnavailable,
    TidemillError,
    UnknownName,
    UserCodeError,
)

if TYPE_CHECKING:
    from tidemill.api.aggregators import AccumulatorAgg, Agg, CombinerAgg, CompoundAgg, TopMonotonicAgg
    from tidemill.api.arguments import Constant, Expr, Helpers, operation, vectorized
    from tidemill.api.block import Block, Case, LoopVars, SubSource
    from tidemill.api.depot_producer import DepotProducer
    from tidemill.api.depots import Depot, Partitioning
    from tidemill.api.emits import CapturedEmit, MockOutputCollector
    from tidemill.api.launch import AckLevel, LaunchConfig, UpdateOptions
    from tidemill.api.limits import LimitAgg
    from tidemill.api.module import Module, Setup, Topologies
    from tidemill.api.path import Path
    from tidemill.api.ranges import SortedRangeFromOptions, SortedRangeOptions, SortedRangeToOptions
    from tidemill.api.schemas import PState, Schema, SubindexOptions
    from tidemill.api.selects import SelectOptions
    from tidemill.api.sub_batch import SubBatch
    from tidemill.api.topology import MicrobatchSourceOptions, MicrobatchTopology, OffsetAgo, PStateBuilder
    from tidemill.clients.depot import DepotHandle
    from tidemill.clients.diffs import (
        AppendDiff,
        DestroyedDiff,
        Diff,
        KeyDiff,
        KeyRemoveDiff,
        KeysDiff,
        MultiDiff,
        NewValueDiff,
        ResyncDiff,
        SequenceIndexChangesDiff,
        SequenceIndexRemoveDiff,
        SequenceInsertDiff,
        SetAddDiff,
        SetRemoveDiff,
        UngracefulTerminationDiff,
    )
    from tidemill.clients.proxies import ProxyState, ProxyStatus
    from tidemill.clients.pstate import PStateHandle
    from tidemill.clients.quarantine import Quarantine
    from tidemill.cluster.in_process import InProcessCluster
    from tidemill.graphs.dataset import Dataset, KVDataset, RangeDataset
    from tidemill.graphs.executor import Executor, StatelessExecutor
    from tidemill.graphs.executors.aggregation import AggExecutor, CountExecutor
    from tidemill.graphs.executors.asof import AsOfJoinExecutor
    from tidemill.graphs.executors.joins import JoinExecutor
    from tidemill.graphs.executors.outputs import OutputCSVExecutor, OutputParquetExecutor, PublishExecutor
    from tidemill.graphs.executors.postgres_output import PostgresPublishExecutor
    from tidemill.graphs.executors.rows import (
        DistinctExecutor,
        FilterExecutor,
        LimitExecutor,
        MergedStorageExecutor,
        ProjectExecutor,
        StorageExecutor,
        UnionExecutor,
    )
    from tidemill.graphs.executors.sort import SortExecutor, TopKExecutor
    from tidemill.graphs.executors.spilling_join import OOCJoinExecutor
    from tidemill.graphs.executors.spmv import SpMVExecutor
    from tidemill.graphs.executors.windows import HoppingWindowExecutor, SessionWindowExecutor, TumblingWindowExecutor
    from tidemill.graphs.frames.frame import GraphFrame
    from tidemill.graphs.partitions import RangePartition, SplitPartition
    from tidemill.graphs.task_graph import TaskGraph
    from tidemill.graphs.windowed_dataset import WindowedDataset
    from tidemill.kafka.depot import KafkaDepot
    from tidemill.kafka.sink import KafkaSink, to_kafka
    from tidemill.language.emits import emit_stream
    from tidemill.language.external import Delivery, ExternalDepot, ExternalSink
    from tidemill.language.objects import TaskGlobalContext, TaskGlobalObject
    from tidemill.language.operations import Ops
    from tidemill.pstate.test_pstate import TestPState
    from tidemill.queries.handle import QueryHandle
    from tidemill.scans.scan import scan, scan_arrow, scan_depot
    from tidemill.sinks.iceberg import IcebergSink
    from tidemill.sinks.postgres import PostgresSink
    from tidemill.values.absent import VOID
    from tidemill.values.data import to_text

__version__ = "0.1.0"

_NAMES = {
    "tidemill.api.aggregators": ("AccumulatorAgg", "Agg", "CombinerAgg", "CompoundAgg", "TopMonotonicAgg"),
    "tidemill.api.arguments": ("Constant", "Expr", "Helpers", "operation", "vectorized"),
    "tidemill.api.block": ("Block", "Case", "LoopVars", "SubSource"),
    "tidemill.api.depots": ("Depot", "Partitioning"),
    "tidemill.api.emits": ("CapturedEmit", "MockOutputCollector"),
    "tidemill.api.depot_producer": ("DepotProducer",),
    "tidemill.api.launch": ("AckLevel", "LaunchConfig", "UpdateOptions"),
    "tidemill.api.limits": ("LimitAgg",),
    "tidemill.api.module": ("Module", "Setup", "Topologies"),
    "tidemill.api.path": ("Path",),
    "tidemill.api.ranges": ("SortedRangeFromOptions", "SortedRangeOptions", "SortedRangeToOptions"),
    "tidemill.api.schemas": ("PState", "Schema", "SubindexOptions"),
    "tidemill.api.selects": ("SelectOptions",),
    "tidemill.api.sub_batch": ("SubBatch",),
    "tidemill.api.topology": ("MicrobatchSourceOptions", "MicrobatchTopology", "OffsetAgo", "PStateBuilder"),
    "tidemill.clients.depot": ("DepotHandle",),
    "tidemill.clients.diffs": (
        "AppendDiff",
        "DestroyedDiff",
        "Diff",
        "KeyDiff",
        "KeyRemoveDiff",
        "KeysDiff",
        "MultiDiff",
        "NewValueDiff",
        "ResyncDiff",
        "SequenceIndexChangesDiff",
        "SequenceIndexRemoveDiff",
        "SequenceInsertDiff",
        "SetAddDiff",
        "SetRemoveDiff",
        "UngracefulTerminationDiff",
    ),
    "tidemill.clients.proxies": ("ProxyState", "ProxyStatus"),
    "tidemill.clients.pstate": ("PStateHandle",),
    "tidemill.clients.quarantine": ("Quarantine",),
    "tidemill.cluster.in_process": ("InProcessCluster",),
    "tidemill.graphs.dataset": ("Dataset", "KVDataset", "RangeDataset"),
    "tidemill.graphs.executor": ("Executor", "StatelessExecutor"),
    "tidemill.graphs.executors.aggregation": (
        "AggExecutor",
        "CountExecutor",
    ),
    "tidemill.graphs.executors.asof": ("AsOfJoinExecutor",),
    "tidemill.graphs.executors.joins": ("JoinExecutor",),
    "tidemill.graphs.executors.outputs": (
        "OutputCSVExecutor",
        "OutputParquetExecutor",
        "PublishExecutor",
    ),
    "tidemill.graphs.executors.rows": (
        "DistinctExecutor",
        "FilterExecutor",
        "LimitExecutor",
        "MergedStorageExecutor",
        "ProjectExecutor",
        "StorageExecutor",
        "UnionExecutor",
    ),
    "tidemill.graphs.executors.postgres_output": ("PostgresPublishExecutor",),
    "tidemill.graphs.executors.sort": (
        "SortExecutor",
        "TopKExecutor",
    ),
    "tidemill.graphs.executors.spilling_join": ("OOCJoinExecutor",),
    "tidemill.graphs.executors.spmv": ("SpMVExecutor",),
    "tidemill.graphs.executors.windows": (
        "HoppingWindowExecutor",
        "SessionWindowExecutor",
        "TumblingWindowExecutor",
    ),
    "tidemill.graphs.frames.frame": ("GraphFrame",),
    "tidemill.graphs.partitions": (
        "RangePartition",
        "SplitPartition",
    ),
    "tidemill.graphs.task_graph": ("TaskGraph",),
    "tidemill.graphs.windowed_dataset": ("WindowedDataset",),
    "tidemill.kafka.depot": ("KafkaDepot",),
    "tidemill.kafka.sink": ("KafkaSink", "to_kafka"),
    "tidemill.language.emits": ("emit_stream",),
    "tidemill.language.external": ("Delivery", "ExternalDepot", "ExternalSink"),
    "tidemill.language.objects": ("TaskGlobalContext", "TaskGlobalObject"),
    "tidemill.language.operations": ("Ops",),
    "tidemill.values.absent": ("VOID",),
    "tidemill.values.data": ("to_text",),
    "tidemill.pstate.test_pstate": ("TestPState",),
    "tidemill.queries.handle": ("QueryHandle",),
    "tidemill.scans.scan": ("scan", "scan_arrow", "scan_depot"),
    "tidemill.sinks.iceberg": ("IcebergSink",),
    "tidemill.sinks.postgres": ("PostgresSink",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load the module of a name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tidemill' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "AccumulatorAgg",
    "AckLevel",
    "Agg",
    "AggExecutor",
    "ApiUnavailable",
    "AppendDiff",
    "AsOfJoinExecutor",
    "AttemptLost",
    "AttemptTimeout",
    "BadInput",
    "BadPath",
    "Block",
    "BudgetExceeded",
    "Busy",
    "CapturedEmit",
    "Case",
    "CombinerAgg",
    "CombinersDiffer",
    "CompoundAgg",
    "Constant",
    "CorruptState",
    "CountExecutor",
    "Dataset",
    "DefinitionError",
    "DefinitionWarning",
    "Deleted",
    "Delivery",
    "Depot",
    "DepotClosed",
    "DepotHandle",
    "DepotProducer",
    "DestroyedDiff",
    "Diff",
    "DistinctExecutor",
    "EngineUnavailable",
    "Executor",
    "Expr",
    "ExternalDepot",
    "ExternalSink",
    "ExternalUnavailable",
    "Fault",
    "Fenced",
    "FilterExecutor",
    "GraphFrame",
    "Helpers",
    "HoppingWindowExecutor",
    "IcebergSink",
    "InProcessCluster",
    "InvariantViolation",
    "JoinExecutor",
    "KVDataset",
    "KafkaDepot",
    "KafkaSink",
    "KeyDiff",
    "KeyRemoveDiff",
    "KeyReused",
    "KeysDiff",
    "LaunchConfig",
    "LimitAgg",
    "LimitExecutor",
    "LoopVars",
    "Managed",
    "MergedStorageExecutor",
    "MicrobatchFails",
    "MicrobatchSourceOptions",
    "MicrobatchTopology",
    "MirrorBroken",
    "MockOutputCollector",
    "Module",
    "ModuleExists",
    "MultiDiff",
    "NeedsCode",
    "NewValueDiff",
    "NewerFormat",
    "NotOneValue",
    "NotSelectable",
    "OOCJoinExecutor",
    "OffsetAgo",
    "Ops",
    "OptionError",
    "OutcomeUnknown",
    "OutputCSVExecutor",
    "OutputParquetExecutor",
    "OwnedByAnother",
    "PState",
    "PStateBuilder",
    "PStateHandle",
    "Partitioning",
    "Path",
    "PostgresPublishExecutor",
    "PostgresSink",
    "ProjectExecutor",
    "ProxyState",
    "ProxyStatus",
    "PublishExecutor",
    "Quarantine",
    "QueryHandle",
    "RangeDataset",
    "RangePartition",
    "RecordRefused",
    "RecordsTrimmed",
    "ResyncDiff",
    "RetryableError",
    "Schema",
    "SchemaMismatch",
    "SchemaOutdated",
    "SelectOptions",
    "SequenceIndexChangesDiff",
    "SequenceIndexRemoveDiff",
    "SequenceInsertDiff",
    "SequenceUnknown",
    "SessionWindowExecutor",
    "SetAddDiff",
    "SetRemoveDiff",
    "Setup",
    "SnapshotExpired",
    "SortExecutor",
    "SortedRangeFromOptions",
    "SortedRangeOptions",
    "SortedRangeToOptions",
    "SpMVExecutor",
    "SplitPartition",
    "StatelessExecutor",
    "StorageExecutor",
    "StoreRefused",
    "StoreRestored",
    "StoreUnavailable",
    "SubBatch",
    "SubSource",
    "SubindexOptions",
    "TaskGlobalContext",
    "TaskGlobalObject",
    "TaskGraph",
    "TestPState",
    "TidemillError",
    "TopKExecutor",
    "TopMonotonicAgg",
    "Topologies",
    "TumblingWindowExecutor",
    "UngracefulTerminationDiff",
    "UnionExecutor",
    "UnknownName",
    "UpdateOptions",
    "UserCodeError",
    "VOID",
    "WindowedDataset",
    "emit_stream",
    "operation",
    "scan",
    "scan_arrow",
    "scan_depot",
    "to_kafka",
    "to_text",
    "vectorized",
]
