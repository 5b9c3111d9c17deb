"""Writes the table of Rama's public Java names and what each of them is here, read from the code.

`python scripts/generate_rama_names.py` writes; with `--check` it only says that the page is not up to date, and
exits 1.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from generated_page import ROOT, write_or_check

PAGE = ROOT / "docs/reference/rama-names.md"
HEAD = """# Rama's names

Made by `scripts/generate_rama_names.py`. Rama's public Java API for modules, dataflow, paths and tests, as its
documentation names it, and the names here. The rule is snake case, Python's types in place of classes (`str`, `int`,
`float`, `bool`, `bytes`, `datetime`, `dict`, `list`, `set`, `object`), any callable in place of `RamaFunctionN`, `with`
in place of try-with-resources, and `_` after a name that Python has taken (`global_`, `and_`). Everything is imported
from `tidemill`. Where the last column is empty, a name means here what it means there."""
REFUSED = "refused by its name for now"
MISSING = "not there"
TAKEN = ("global", "and", "or", "not", "lambda")


@dataclass(frozen=True)
class Group:
    """Names of one Java class. `owner` is where they are here: `module:Class`, or `module` for names of `tidemill`."""

    title: str
    java: str
    owner: str
    names: str


GROUPS = (
    Group("Modules", "RamaModule", "tidemill.api.module:Module", "define getModuleName"),
    Group("What a module declares", "Setup", "tidemill.api.module:Setup",
          "declareDepot declareTickDepot declareObject clusterDepot clusterPState clusterQuery"),
    Group("Objects of a module", "TaskGlobalObject", "tidemill.language.objects:TaskGlobalObject",
          "prepareForTask close"),
    Group("Depots outside the store", "ExternalDepot", "tidemill.language.external:ExternalDepot",
          "getNumPartitions startOffset endOffset fetchFrom offsetAfterTimestampMillis"),
    Group("Its topologies", "Topologies", "tidemill.api.module:Topologies", "microbatch query stream"),
    Group("A microbatch topology", "MicrobatchTopology", "tidemill.api.topology:MicrobatchTopology", "source pstate"),
    Group("Where a source begins", "MicrobatchSourceOptions", "tidemill.api.topology:MicrobatchSourceOptions",
          "startFromBeginning startFromOffsetAfterTimestamp startFromOffsetAgo sourceId"),
    Group("Units of startFromOffsetAgo", "OffsetAgo", "tidemill.api.topology:OffsetAgo",
          "RECORDS SECONDS MINUTES HOURS DAYS"),
    Group("Depots", "Depot", "tidemill.api.depots:Depot", "random hashBy disallow TOMBSTONE"),
    Group("Options of a depot", "Depot.Declaration", "tidemill.api.module:DepotBuilder", "global migration"),
    Group("Options of a PState", "PState.Declaration", "tidemill.api.topology:PStateBuilder",
          "global initialValue makePrivate keyPartitioner"),
    Group("Schemas", "PState", "tidemill.api.schemas:PState", "mapSchema setSchema listSchema fixedKeysSchema"),
    Group("Subindexed schemas", "PState.Schema", "tidemill.api.schemas:Schema", "subindexed"),
    Group("Options of subindexed", "SubindexOptions", "tidemill.api.schemas:SubindexOptions", "withoutSizeTracking"),
    Group("PState migrations", "PState", "tidemill.api.schemas:PState", "migrated"),
    Group("Options of a migration", "PState.MigratedSchema", "tidemill.api.schemas:Schema",
          "migrateToSubindexed addFixedKeys removeFixedKeys"),
    Group("Dataflow: rows", "Block", "tidemill.api.block:Block",
          "create each out outStream eachAsync keepTrue macro yieldIfOvertime execute explodeMicrobatch ackReturn"),
    Group("Dataflow: conditions and loops", "Block", "tidemill.api.block:Block",
          "ifTrue cond subSource loop loopWithVars continueLoop emitLoop atomicBlock"),
    Group("Dataflow: partitioners", "Block", "tidemill.api.block:Block",
          "hashPartition globalPartition allPartition shufflePartition directPartition pathPartition customPartition "
          "originPartition"),
    Group("Dataflow: PStates, depots and queries", "Block", "tidemill.api.block:Block",
          "localSelect select localTransform localClear agg compoundAgg invokeQuery depotPartitionAppend"),
    Group("Dataflow: batch blocks", "Block", "tidemill.api.block:Block",
          "batchBlock groupBy freshBatchSource subBatch limitAgg materialize explodeMaterialized"),
    Group("Dataflow: graph", "Block", "tidemill.api.block:Block", "anchor hook branch unify"),
    Group("Dataflow: parts", "", "tidemill",
          "Block Case SubSource LoopVars SubBatch LimitAgg SelectOptions Expr Constant Helpers CompoundAgg"),
    Group("Helpers", "Helpers", "tidemill.api.arguments:Helpers",
          "genVar genPStateVar isGeneratedVar getGeneratedVarPrefix genHashingIndexKeys"),
    Group("limitAgg", "LimitAgg", "tidemill:LimitAgg", "create sort reverse indexVar"),
    Group("Built-in operations", "Ops", "tidemill.language.operations:Ops",
          "EXPLODE EXPLODE_INDEXED EXPLODE_MAP EXPAND TUPLE RANGE IDENTITY PRINTLN GET FIRST LAST SIZE CONTAINS INC "
          "DEC INC_LONG DEC_LONG PLUS PLUS_LONG MINUS TIMES DIV SUM EQUAL NOT_EQUAL LESS_THAN LESS_THAN_OR_EQUAL "
          "GREATER_THAN GREATER_THAN_OR_EQUAL AND OR NOT IS_NULL IS_NOT_NULL IS_EVEN IS_ODD IS_INSTANCE_OF CLASS_OF "
          "TO_STRING CURRENT_TASK_ID CURRENT_MICROBATCH_ID CURRENT_TOPOLOGY_TYPE MODULE_INSTANCE_INFO "
          "CURRENT_RANDOM_SOURCE RANDOM_UUID7 EXTRACT_VALUE"),
    Group("Functions of the user", "", "tidemill",
          "RamaFunction RamaOperation OutputCollector.emit OutputCollector.emitStream RamaCombinerAgg "
          "RamaAccumulatorAgg Navigator"),
    Group("Aggregators", "Agg", "tidemill.api.aggregators:Agg",
          "count sum min max and or first last list set setRemove multiSet map merge avg topMonotonic voided combiner "
          "accumulator captureNewValInto"),
    Group("Compound aggregators", "CompoundAgg", "tidemill.api.aggregators:CompoundAgg", "map list"),
    Group("Options of topMonotonic", "TopMonotonicAgg", "tidemill.api.aggregators:TopMonotonicAgg",
          "idFunction sortValFunction ascending"),
    Group("Paths: maps", "Path", "tidemill.api.path:Path",
          "key must mapVals mapKeys mapKey all subMap sortedMapRange sortedMapRangeFrom sortedMapRangeFromStart "
          "sortedMapRangeTo sortedMapRangeToEnd"),
    Group("Paths: sets", "Path", "tidemill.api.path:Path",
          "setElem voidSetElem subset sortedSetRange sortedSetRangeFrom sortedSetRangeFromStart sortedSetRangeTo "
          "sortedSetRangeToEnd"),
    Group("Paths: lists", "Path", "tidemill.api.path:Path",
          "nth first last index indexedVals beforeElem afterElem beforeIndex beginning end sublist sublistDynamic "
          "filteredList"),
    Group("Paths: filters and views", "Path", "tidemill.api.path:Path",
          "filterPred filterEqual filterNotEqual filterLessThan filterLessThanOrEqual filterGreaterThan "
          "filterGreaterThanOrEqual filterSelected filterNotSelected nullToVal nullToList nullToSet view transformed"),
    Group("Paths: control and values", "Path", "tidemill.api.path:Path",
          "stay stop ifPath multiPath subselect withPageSize customNav customNavBuilder collect collectOne "
          "putCollected isCollected dispenseCollected term termVal termVoid"),
    Group("Range options", "", "tidemill", "SortedRangeOptions SortedRangeFromOptions SortedRangeToOptions"),
    Group("Depot clients", "Depot", "tidemill.clients.depot:DepotHandle",
          "append appendAsync getObjectInfo getObjectInfoAsync getPartitionInfo getPartitionInfoAsync read readAsync"),
    Group("PState clients", "PState", "tidemill.clients.pstate:PStateHandle",
          "select selectAsync selectOne selectOneAsync proxy proxyAsync getObjectInfo"),
    Group("Query clients", "QueryTopologyClient", "tidemill.queries.handle:QueryHandle", "invoke invokeAsync"),
    Group("Tests: a cluster in process", "InProcessCluster", "tidemill.cluster.in_process:InProcessCluster",
          "create launchModule updateModule destroyModule clusterDepot clusterPState clusterQuery "
          "pauseMicrobatchTopology resumeMicrobatchTopology waitForMicrobatchProcessedCount getDeployedModuleNames "
          "getMicrobatchDepotInfo close"),
    Group("Tests: launching", "", "tidemill", "LaunchConfig UpdateOptions AckLevel"),
    Group("Tests: LaunchConfig", "LaunchConfig", "tidemill.api.launch:LaunchConfig", "numWorkers"),
    Group("Tests: UpdateOptions", "UpdateOptions", "tidemill.api.launch:UpdateOptions", "objectsToDelete"),
    Group("Tests: a PState alone", "TestPState", "tidemill.pstate.test_pstate:TestPState",
          "create select selectOne transform close"),
    Group("Tests: an operation alone", "MockOutputCollector", "tidemill.api.emits:MockOutputCollector",
          "getEmits getEmitsByStream"),
)  # fmt: skip

HERE: dict[str, str] = {
    "RamaModule.getModuleName": "module_name", "Block.branch": "branch", "RamaCombinerAgg": "CombinerAgg",
    "RamaAccumulatorAgg": "AccumulatorAgg", "RamaOperation": "operation", "OutputCollector.emitStream": "emit_stream",
    "Helpers.genPStateVar": "gen_pstate_var", "Setup.clusterPState": "cluster_pstate",
    "InProcessCluster.clusterPState": "cluster_pstate", "LaunchConfig.numWorkers": "num_workers",
}  # fmt: skip
"""Names that the rule does not give."""

INSTEAD: dict[str, str] = {
    "RamaFunction": "any callable", "OutputCollector.emit": "`yield` in an `@operation`",
    "Helpers.genHashingIndexKeys": "`tidemill.testing.gen_hashing_index_keys`", "Topologies.stream": "",
    "Block.ackReturn": "", "Ops.EXTRACT_VALUE": "`Ops.IDENTITY`",
}  # fmt: skip
"""What stands in another place than the group's, as it is shown; nothing where there is none."""

DIFFERENCES: dict[str, str] = {
    "RamaModule.getModuleName": "the name of the class, unless overridden; Rama has the package too",
    "Setup.declareObject": "one object a process, not one a task; a function without arguments makes it there",
    "TaskGlobalObject.prepareForTask": "once a process: its argument is the module's name and the object's",
    "ExternalDepot.getNumPartitions": "methods return values, no futures; `bounds` asks for all partitions at once",
    "ExternalDepot.fetchFrom": "always with an end",
    "Topologies.stream": "refused: there are microbatch topologies only",
    "Block.ackReturn": "refused: it belongs to stream topologies",
    "Block.execute": "returns the rows that reach the end, as dicts; `tasks` and `pstates` are its arguments",
    "Block.each": "the operation, a callable, `@operation` (any number of rows) or `@vectorized` (whole columns)",
    "Block.out": "names a variable once; `.out_stream` may stand before or behind it",
    "Block.outStream": "emit with `yield emit_stream(stream, …)`; what nothing binds is dropped",
    "Block.eachAsync": "an `async def`, or a function that returns a future; `concurrency` and `timeout_seconds`",
    "Block.macro": "also a function of a block, with its arguments",
    "Block.yieldIfOvertime": "changes nothing: no step keeps a reader waiting",
    "Block.cond": "a row that no case takes passes through",
    "Block.subSource": "also by a constant or a function; a value that no case takes fails the microbatch",
    "Block.atomicBlock": "rows may wait for it together, where no order shows",
    "Block.explodeMicrobatch": "what follows runs once a record, and never on a task without one",
    "Block.ifTrue": "only `None` and `False` are false",
    "Block.hashPartition": "the hash is this project's own: equal keys go to one task, as with `hash_by`",
    "Block.depotPartitionAppend": "exactly once, with the commit of the microbatch; Rama repeats it in a retry",
    "Block.batchBlock": "begins on task 0; a batch block cannot stand inside another one",
    "Setup.declareTickDepot": "at most one tick a microbatch",
    "Depot.hashBy": "also by names of fields of dict records",
    "PState.mapSchema": "keys are of a plain type; `PState.nullable(type)` allows `None`",
    "PState.setSchema": "elements are of a plain type; `PState.nullable(type)` allows `None`",
    "Agg.avg": "for variables of a batch block only",
    "Ops.INC_LONG": "as `INC`: Python has one int", "Ops.DEC_LONG": "as `DEC`: Python has one int",
    "Ops.PLUS_LONG": "takes ints of all its arguments", "Ops.DIV": "a float; Rama's Java name for it is not documented",
    "Ops.EQUAL": "Python's `==`: `1` and `1.0` are equal", "Ops.CLASS_OF": "a Python type",
    "Ops.IS_INSTANCE_OF": "Python's `isinstance`: a bool is an int; `sub_source` tells them apart",
    "Ops.PRINTLN": "the texts of Python's `str`, with spaces between",
    "Ops.TO_STRING": "the texts of Python's `str`, one after the other",
    "Ops.MODULE_INSTANCE_INFO": "a dict of `module`, `tasks`, `threads`, `instance`, `superstep`, `is_probe`",
    "Ops.CURRENT_RANDOM_SOURCE": "a `random.Random` of the attempt, task and step", "Ops.RANDOM_UUID7": "a text",
    "Ops.SIZE": "0 for `None`",
    "Depot.append": "`ack=AckLevel.ACK` is the default and gives `{}`: no topology answers; `append_many` is fast",
    "Depot.appendAsync": "a `concurrent.futures.Future`",
    "Depot.getPartitionInfo": "a named tuple `(start_offset, end_offset)`",
    "PState.select": "`pkey=` for a partitioning key; `max_staleness_ms=`; `at(entry)` pins a state",
    "PState.selectOne": "`NotOneValue` where the path finds none or several",
    "QueryTopologyClient.invokeAsync": "a `concurrent.futures.Future`",
    "Topologies.query": "reads one commit of each topology; runs where it is asked, or on Spark: `engine=`",
    "InProcessCluster.create": '`engine="local"` or `"spark"`; `store=` for a folder or bucket',
    "InProcessCluster.waitForMicrobatchProcessedCount": "its `TimeoutError` shows progress and the last failure",
    "LaunchConfig": "tasks and threads are powers of two",
    "LaunchConfig.numWorkers": "changes nothing: Spark decides how many processes run the threads",
    "SelectOptions": "`allow_yield` changes nothing: no step keeps a reader waiting",
    "MockOutputCollector.getEmits": "each is the list of its values; `run(operation, …)` calls the operation",
    "MockOutputCollector.getEmitsByStream": "emits with `name` and `values`; `None` is the default stream",
    "RamaCombinerAgg": "a class with `combine`, `zero_val` and perhaps `is_flush_required`",
    "RamaAccumulatorAgg": "a class with `accumulate` and `init_val`",
    "RamaOperation": "a decorator of generators", "RamaFunction": "one result; the argument may not be a coroutine",
    "Navigator": "see `Path.custom_nav`",
    "PState.MigratedSchema.migrateToSubindexed": "of values of a top-level map or record, one level at a time",
    "PState.MigratedSchema.addFixedKeys": "may be left out; an update may also add fields without a migration",
    "PState.MigratedSchema.removeFixedKeys": "may be left out",
    "Depot.Declaration.migration": "on read, for as long as the code has it; the log is not rewritten",
    "PState.migrated": "the function sees each value once, idempotent or not; `.migrated(…).migrated(…)` chains",
    "Ops.EXTRACT_VALUE": "reads an object of a task in Rama",
}  # fmt: skip
ELSEWHERE = """
## Forms that only Rama's Clojure API has

| Clojure | here |
| --- | --- |
| `<<switch` | `sub_source` with constants: `SubSource.create("signup")` |
| `<<cond` with `:unify false` | `sub_source`, whose unmatched values fail the microbatch and bind nothing |
| `ifexpr` | `Expr` of a function of yours; or `if_true` with both sides binding one variable |
| `<<shadowif` | `.each(f, "*v").out("*v")`: outside batch blocks a variable may be bound again |
| `:stream>` captures | `out_stream` |
| `<<with-substitutions` | Python's own means: a module is a class, pass what a test replaces to its constructor |

## Helpers of the library rama-helpers

| rama-helpers | here |
| --- | --- |
| `TopologyUtils.currentTimeMillis` | a function that the module's constructor takes: `time.time`, or a test's own |
| `TopologyUtils.startSimTime` | not there: the function of a test returns the time that the test wants |
| `TopologyUtils.advanceSimTime` | as above; and a record to a plain depot in place of a tick |"""


def page() -> str:
    """The page as it should be."""
    lines = [HEAD]
    for group in GROUPS:
        lines += ["", f"## {group.title}", "", "| Rama | here | differences |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join((f'`{row.rama}`', row.here or MISSING, row.difference))} |" for row in rows(group)]
    return "\n".join([*lines, ELSEWHERE]) + "\n"


@dataclass(frozen=True)
class Row:
    """One name: `here` is empty where nothing has it, `value` what it is in the code (None where it is none)."""

    rama: str
    here: str
    difference: str
    value: Any


def rows(group: Group) -> Iterator[Row]:
    """The rows of a group, in its order."""
    for name in group.names.split():
        rama = f"{group.java}.{name}" if group.java else name
        if rama in INSTEAD:
            yield Row(rama, INSTEAD[rama], DIFFERENCES.get(rama, ""), None)
            continue
        own = HERE.get(rama) or python_name(name)
        value = _found(group.owner, own)
        if value is None:
            yield Row(rama, "", DIFFERENCES.get(rama, ""), None)
            continue
        label = own if ":" not in group.owner else f"{_label(group.owner)}.{own}"
        difference = REFUSED if is_refused(value) else DIFFERENCES.get(rama, "")
        yield Row(rama, f"`{label}`", difference, value)


def python_name(name: str) -> str:
    """The name that the rule gives: `hash_partition` for `hashPartition`, `global_` for `global`."""
    if name.isupper() or name[0].isupper():
        return name
    snake = re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name).replace("_p_state", "_pstate")
    return f"{snake}_" if snake in TAKEN else snake


def is_refused(value: Any) -> bool:
    """Whether a word is only recorded so that it is refused by its name."""
    text = inspect.getdoc(value) or ""
    return text.startswith("Later:") or "a later version" in text.lower()


def _found(owner: str, name: str) -> Any:
    """What has this name; None where nothing has, or where the class itself is not there."""
    module, _, kind = owner.partition(":")
    try:
        place: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        return None
    if not kind:
        return getattr(place, name, None)
    return inspect.getattr_static(getattr(place, kind, None), name, None)


def _label(owner: str) -> str:
    """How users call the class of a group: what is exported by its name, the others by their own word."""
    shown = {
        "DepotBuilder": "declare_depot(…)", "PStateBuilder": "pstate(…)", "Schema": "schema", "DepotHandle": "depot",
        "PStateHandle": "pstate", "QueryHandle": "query",
    }  # fmt: skip
    kind = owner.rpartition(":")[2]
    return shown.get(kind, kind)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
