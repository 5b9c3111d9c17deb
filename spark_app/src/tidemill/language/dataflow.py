"""What a user's `define` recorded, as data: dataflow nodes, arguments, paths and aggregators.

`api` writes these, `plan` checks and compiles them. A block is a tuple of nodes that run one after the other on each
row of variables; nodes that hold blocks (`Cond`, `Loop`, `BatchBlock`, …) make it a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Union

from tidemill.values.stored import Stored


@dataclass(frozen=True)
class Location:
    """Where in the user's code something was written, for errors and for `describe`."""

    file: str = "<unknown>"
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


# --- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Var:
    """A dataflow variable, with its sigil: `*name`."""

    name: str


@dataclass(frozen=True)
class Const:
    """A constant; compared by identity of its value's repr only in descriptions."""

    value: Any

    def __hash__(self) -> int:
        return hash(repr(self.value))


HIDDEN = "*~"
"""How the names of variables begin that nobody wrote; no message shows them, and no join is on them."""

FunctionKind = Literal["builtin", "function", "operation", "vectorized", "async"]


@dataclass(frozen=True)
class Function:
    """Something that can be applied to arguments.

    builtin: one of `language.operations`, `call` is its row form. function: one result a call. operation: a generator
    that emits any number of tuples. vectorized: takes Polars series, returns one series (or a tuple of them) as long.
    async: `call` is an `AsyncCall`, which returns what is awaited for the one result.
    """

    name: str
    kind: FunctionKind
    call: Callable[..., Any] = field(compare=False)


@dataclass(frozen=True)
class AsyncCall:
    """A function that returns an awaitable or a future: at most `concurrency` calls of a thread run at once.

    Each may take `timeout_seconds`; None, and whatever is more: as long as a phase of the microbatch.
    """

    call: Callable[..., Any]
    concurrency: int
    timeout_seconds: float | None = None

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)


@dataclass(frozen=True)
class RecordedExpr:
    """A nested expression in argument position."""

    function: Function
    args: tuple[Arg, ...]


Arg = Union[Var, Const, RecordedExpr]


# --- paths -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Nav:
    """One navigator: its name in snake case (`key`, `sorted_map_range`, `term_val`, …) and its arguments.

    `args` holds `Arg`s, `Function`s (of `view`, `filter_pred`, `term`, …) and `RecordedPath`s (of `if_path`,
    `filter_selected`, `multi_path`, …) in the order of the public signature; `options` the keyword options
    (`include_end`, `max_amt`, …).
    """

    name: str
    args: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class RecordedPath:
    """A sequence of navigators, from a PState's partition to zero or more values."""

    navs: tuple[Nav, ...] = ()

    @property
    def leading_key(self) -> Arg | None:
        """The key that the path begins with, which says its task; None if it begins otherwise."""
        if not self.navs or self.navs[0].name not in ("key", "must"):
            return None
        return next(iter(self.navs[0].args), None)

    @property
    def collects(self) -> bool:
        """Whether it collects values, itself or in a path in it: these come first where a terminal calls a function."""
        paths = (arg for nav in self.navs for arg in nav.args if isinstance(arg, RecordedPath))
        is_collecting = any(nav.name in ("collect", "collect_one", "put_collected") for nav in self.navs)
        return is_collecting or any(path.collects for path in paths)


# --- aggregators -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aggregator:
    """One aggregator: `name` as in `language.combiners` (`count`, `sum`, …), or a custom combiner or accumulator.

    `implementation` is the user's object for kind "combiner"/"accumulator" given by `Agg.combiner`/`Agg.accumulator`,
    None for built-in ones. `options` are those of `top_monotonic` (`id_function`, `sort_val_function`, `ascending`).
    `capture` is the variable that takes the new value of each key after the aggregation of a batch block.
    """

    name: str
    kind: Literal["combiner", "accumulator", "void"]
    args: tuple[Arg, ...] = ()
    implementation: Any = field(default=None, compare=False)
    options: tuple[tuple[str, Any], ...] = ()
    capture: str | None = None


@dataclass(frozen=True)
class AggMap:
    """`CompoundAgg.map(k, X, k2, Y, …)`: navigate to each key and aggregate there."""

    entries: tuple[tuple[Arg, AggTree], ...]


@dataclass(frozen=True)
class AggList:
    """`CompoundAgg.list(X, Y, …)`: aggregate into positions 0, 1, … of a list."""

    items: tuple[AggTree, ...]


AggTree = Union[Aggregator, AggMap, AggList]


# --- nodes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Each:
    """Call a function for each row; the row goes on once for each tuple that it gives, bound to `outs`."""

    function: Function
    args: tuple[Arg, ...]
    outs: tuple[str, ...]
    at: Location


@dataclass(frozen=True)
class ExplodeMicrobatch:
    """Go on with each record of the microbatch, bound to `out` (None: unbound), on the task of its partition."""

    microbatch: str
    out: str | None
    at: Location


@dataclass(frozen=True)
class Materialize:
    """Keep `args` of each row on its task, as rows of the temporary PState `temp`; the row goes on."""

    args: tuple[Arg, ...]
    temp: str
    at: Location


@dataclass(frozen=True)
class ExplodeMaterialized:
    """Go on with each row of the temporary PState `temp`, its values bound to `outs`, on the task that has it."""

    temp: str
    outs: tuple[str, ...]
    at: Location


@dataclass(frozen=True)
class KeepTrue:
    """Drop the rows whose condition is None or False."""

    condition: Arg
    at: Location


@dataclass(frozen=True)
class Cond:
    """`if_true` and `cond`: the first case whose condition is true runs, and no other.

    A missing else is a last case `(Const(True), ())`, which passes the row through. What follows sees the variables
    that every case binds.
    """

    cases: tuple[tuple[Arg, tuple[Node, ...]], ...]
    at: Location


@dataclass(frozen=True)
class Loop:
    """`loop_with_vars`: `body` runs with `vars`; `ContinueLoop` runs it again, `EmitLoop` leaves it with `outs`."""

    vars: tuple[tuple[str, Arg], ...]
    body: tuple[Node, ...]
    outs: tuple[str, ...]
    at: Location


@dataclass(frozen=True)
class ContinueLoop:
    """Run the loop's body again, with `args` as its variables."""

    args: tuple[Arg, ...]
    at: Location


@dataclass(frozen=True)
class EmitLoop:
    """Leave the loop, with `args` bound to its `outs`."""

    args: tuple[Arg, ...]
    at: Location


PartitionKind = Literal["hash", "global", "all", "shuffle", "direct", "path", "custom", "origin", "mirror"]
"""How a row's task is chosen; "mirror" is by the number of a partition of another module, which one of these chose."""


@dataclass(frozen=True)
class Partition:
    """Move the row to other tasks. `target` is the depot or PState of the object variants (`$$p`, `*d`), else None.

    args: hash: (value,); direct: (task,); path: (leading key of the path,) with `target` the PState;
    custom: `function` is called with (number of partitions, *args).
    """

    kind: PartitionKind
    args: tuple[Arg, ...]
    target: str | None
    at: Location
    function: Function | None = None


@dataclass(frozen=True)
class LocalSelect:
    """Read from a PState on the row's task; the row goes on once for each value, bound to `outs`."""

    pstate: str
    path: RecordedPath
    outs: tuple[str, ...]
    at: Location


@dataclass(frozen=True)
class LocalTransform:
    """Change a PState on the row's task; the row goes on."""

    pstate: str
    path: RecordedPath
    at: Location


@dataclass(frozen=True)
class LocalClear:
    """Reset a PState on the row's task to its initial value; the row goes on."""

    pstate: str
    at: Location


@dataclass(frozen=True)
class DepotAppend:
    """Append a record to the depot's partition of the row's task, with the commit; the row goes on."""

    depot: str
    value: Arg
    at: Location


@dataclass(frozen=True)
class Aggregate:
    """`agg` and `compound_agg`; `pstate` is None where a batch block aggregates into variables (`outs`).

    `is_temporary`: the PState is one that the aggregation itself makes, for the attempt.
    """

    tree: AggTree
    pstate: str | None
    outs: tuple[str, ...]
    at: Location
    is_temporary: bool = False


@dataclass(frozen=True)
class BatchBlock:
    """Run `body` over the whole microbatch: before, in and after at most one aggregation."""

    body: tuple[Node, ...]
    at: Location


@dataclass(frozen=True)
class FreshBatchSource:
    """Begin another branch of a batch block, to join or to merge with."""

    at: Location


@dataclass(frozen=True)
class SubBatchRows:
    """The rows of another batch block as a source: its variables `vars` are bound to `outs`."""

    body: tuple[Node, ...]
    vars: tuple[str, ...]
    outs: tuple[str, ...]
    at: Location


@dataclass(frozen=True)
class JoinBranches:
    """Go on with the rows of two anchors that agree in the variables `on`; `plan.branches` puts it into batch blocks.

    A side that keeps its rows keeps those without a partner, too; the other side's variables are None there.
    """

    left: str
    right: str
    on: tuple[str, ...]
    keeps_left: bool
    keeps_right: bool
    at: Location


@dataclass(frozen=True)
class GroupBy:
    """`group_by(keys, Block.agg(…)…)`: `body` holds only `Aggregate` nodes with outs; one row a key comes out."""

    keys: tuple[str, ...]
    body: tuple[Node, ...]
    at: Location


@dataclass(frozen=True)
class Limit:
    """`limit_agg`: go on with `vars` of at most `amount` rows, the first by the variables `sort` (any without).

    `index` gets 0, 1, … in that order; `is_reverse`: the last rows, the last one first.
    """

    amount: int
    vars: tuple[str, ...]
    sort: tuple[str, ...]
    at: Location
    is_reverse: bool = False
    index: str | None = None


@dataclass(frozen=True)
class Anchor:
    """Name this place; `Hook` continues from it, `Unify` merges several of them."""

    name: str
    at: Location


@dataclass(frozen=True)
class Hook:
    """Go on from the anchor of this name; the chain before it ends here."""

    name: str
    at: Location


@dataclass(frozen=True)
class Branch:
    """Run `body` from the anchor (or from here if None), beside what follows."""

    anchor: str | None
    body: tuple[Node, ...]
    at: Location


@dataclass(frozen=True)
class Unify:
    """Go on with the rows of all these anchors."""

    anchors: tuple[str, ...]
    at: Location


@dataclass(frozen=True)
class InvokeQuery:
    """Call a query with the row's values; the row goes on, on its task, with the query's result bound to `outs`."""

    query: str
    args: tuple[Arg, ...]
    outs: tuple[str, ...]
    at: Location


@dataclass(frozen=True)
class QueryAnswer:
    """The end of a query: a row that comes here is an answer, which is `value`."""

    value: Arg
    at: Location


Node = Union[
    Each, ExplodeMicrobatch, ExplodeMaterialized, Materialize, KeepTrue, Cond, Loop, ContinueLoop, EmitLoop, Partition,
    LocalSelect, LocalTransform, LocalClear, DepotAppend, Aggregate, BatchBlock, GroupBy, Limit, Anchor, Hook, Branch,
    InvokeQuery, QueryAnswer, Unify, FreshBatchSource, SubBatchRows, JoinBranches,
]  # fmt: skip


# --- the module ------------------------------------------------------------------------------------------------------

DepotPartitioner = Literal["random", "hash_by", "disallow", "custom", "external", "sink"]


TOMBSTONE: Final = "tidemill.Depot.TOMBSTONE"
"""What the function of a depot migration returns for a record that goes."""


@dataclass(frozen=True)
class DepotMigration:
    """Each record of a depot is read as `function(record)`; None where the module's code is not here."""

    id: str
    function: Function | None
    at: Location


@dataclass(frozen=True)
class DepotDeclaration:
    """`partitioner` "hash_by" and "custom" have a `function`: of the record, or of (record, number of partitions).

    "hash_by" has the names of `fields` of dict records instead, where the module names them. `tick_millis` is set for
    tick depots, which hold no records. `schema` is what each record must fit; None: any data. "external": the records
    are outside the store, and an object of the module with the depot's name reads them. "sink": such an object writes
    them, and nothing reads them.
    """

    name: str
    partitioner: DepotPartitioner
    at: Location
    function: Function | None = None
    is_global: bool = False
    tick_millis: int | None = None
    fields: tuple[str, ...] = ()
    schema: Any = None
    migration: DepotMigration | None = None

    @property
    def has_log(self) -> bool:
        """Whether its records are in the store."""
        return self.tick_millis is None and self.partitioner not in ("external", "sink")

    @property
    def takes_appends(self) -> bool:
        """Whether topologies may append to it."""
        return self.has_log or self.partitioner == "sink"


@dataclass(frozen=True)
class Migration:
    """Values at `location` of a PState's schema that were stored before it become `function(value)`, of `schema`.

    With `is_subindexing` each is a structure whose elements are stored one by one from then on.
    """

    location: tuple[str, ...]
    id: str
    schema: Any
    function: Function
    at: Location
    is_subindexing: bool = False


@dataclass(frozen=True, eq=False)
class MigrationStep:
    """One migration of a stored PState: values at `location` had the schema `before`.

    `function` is None where the module's code is not here, or has it no more. Steps are equal only to themselves, for
    two functions of one name may differ.
    """

    pstate: str
    location: tuple[str, ...]
    id: str
    before: Any
    function: Function | None = None
    at: Location = Location()


@dataclass(frozen=True)
class PStateDeclaration:
    """`key_partitioner` is called with (number of partitions, key). `migrations` are those that the code declares;
    `steps` all that its stored rows may still need, known once there is a definition (`definition.migration_steps`).
    """

    name: str
    schema: Any
    at: Location
    is_global: bool = False
    initial_value: Any = None
    is_private: bool = False
    key_partitioner: Function | None = None
    migrations: tuple[Migration, ...] = ()
    steps: tuple[MigrationStep, ...] = ()


StartFromKind = Literal["end", "beginning", "after_timestamp", "ago_records", "ago_millis"]


@dataclass(frozen=True)
class StartFrom(Stored):
    """Where a source begins when its topology first meets the depot; `amount` is ms, records or ms by kind."""

    kind: StartFromKind = "end"
    amount: int = 0


@dataclass(frozen=True)
class SourceDeclaration:
    """One `mb.source(…)` with the chain that follows it. `source_id` is the depot's name unless given."""

    depot: str
    source_id: str
    microbatch: str | None
    start_from: StartFrom
    body: tuple[Node, ...]
    at: Location


@dataclass(frozen=True)
class TopologyDeclaration:
    """One microbatch topology: the PStates that it alone writes, and the chains of its sources."""

    name: str
    pstates: tuple[PStateDeclaration, ...]
    sources: tuple[SourceDeclaration, ...]
    at: Location


QueryEngine = Literal["local", "spark"]


@dataclass(frozen=True)
class QueryDeclaration:
    """One query topology: a batch block that begins with one row of `inputs` and gives one row with `result` (empty
    where its author named none, which is a fault). `engine` says where it runs: "local", in the asker's process, or
    "spark".
    """

    name: str
    inputs: tuple[str, ...]
    result: str
    body: tuple[Node, ...]
    at: Location
    engine: QueryEngine = "local"

    @property
    def block(self) -> BatchBlock:
        """The whole of it, up to its answer."""
        answer = (QueryAnswer(Var(self.result), self.at),) if self.result else ()
        return BatchBlock((*self.body, *answer), self.at)


MirrorKind = Literal["depot", "pstate", "query"]


@dataclass(frozen=True)
class MirroredObject:
    """An object of another module as a store holds it, under the name of its mirror.

    `owner` is the module with its store, `place` the folder of the topology that writes a PState, with its store, `id`
    that of a PState. `tasks` is how many partitions it has. `reads` are the id and the place of each PState that a
    query reads, by its name there.
    """

    owner: str
    place: str
    id: str
    tasks: int
    declared: DepotDeclaration | PStateDeclaration | QueryDeclaration
    reads: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class MirrorDeclaration:
    """An object of another module, and its name here. `store` is the URL of that module's store, empty for the own one.

    `code` is the other module itself, where it was given and not only named. `found` is None until somebody asked the
    store.
    """

    name: str
    kind: MirrorKind
    module: str
    object: str
    at: Location
    store: str = ""
    code: Any = None
    found: MirroredObject | None = None


@dataclass(frozen=True)
class ModuleDeclaration:
    """All that `Module.define` recorded; `faults` holds what was wrong already while recording.

    `options` are (scope "module" | "topology" | "depot" | "pstate", object, option, value). `objects` are declared
    objects by name (`language.objects`); arguments that name them are expressions already.
    """

    name: str
    depots: tuple[DepotDeclaration, ...]
    topologies: tuple[TopologyDeclaration, ...]
    options: tuple[tuple[str, str, str, Any], ...] = ()
    faults: tuple[Any, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    queries: tuple[QueryDeclaration, ...] = ()
    objects: Mapping[str, Any] = field(default_factory=dict)
    mirrors: tuple[MirrorDeclaration, ...] = ()
