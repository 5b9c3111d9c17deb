"""A compiled topology: a graph of operators, the points where messages arrive, and what may be decided before any
record.

Rows start at a `Start` (one row on task 0), walk along `Program.next` from operator to operator, and are copied
where an operator has several successors. `Move` and `Explode` are *points*: a message addressed to one carries the
variables that are live behind it and goes on with its successors. Nothing here knows columns or rows: `engine` runs
it either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Union

from tidemill.language.dataflow import (
    AggTree,
    Arg,
    DepotMigration,
    Function,
    Location,
    PartitionKind,
    PStateDeclaration,
    RecordedPath,
)
from tidemill.language.objects import DeclaredObject
from tidemill.language.schema import Schema
from tidemill.tables.tables import Layout, layout_of

# --- operators -------------------------------------------------------------------------------------------------------
# Arguments are variables and constants only: nested expressions became `Apply`s of their own.


@dataclass(frozen=True)
class Start:
    """Where a region begins: one row without variables (a source) or with those of the entering row (a batch block)."""

    id: int
    region: int
    at: Location


@dataclass(frozen=True)
class Apply:
    """`each`: every row goes on once for each tuple the function gives, with the values bound to `outs`."""

    id: int
    region: int
    at: Location
    function: Function
    args: tuple[Arg, ...]
    outs: tuple[str, ...]


@dataclass(frozen=True)
class Keep:
    """`keep_true`."""

    id: int
    region: int
    at: Location
    condition: Arg


@dataclass(frozen=True)
class Split:
    """Rows whose condition is true go to the first successor, all others to the second."""

    id: int
    region: int
    at: Location
    condition: Arg


@dataclass(frozen=True)
class Join:
    """Where branches meet; `split` is the operator whose rows come together in their old order, None for `unify`."""

    id: int
    region: int
    at: Location
    split: int | None = None


@dataclass(frozen=True)
class Assign:
    """Binds variables at once. `purpose` says which part of a loop this is (its entry, its head, the way back or out);
    "bind" is the end of a sub-batch.
    """

    id: int
    region: int
    at: Location
    outs: tuple[str, ...]
    args: tuple[Arg, ...]
    purpose: Literal["enter", "head", "again", "emit", "bind"]
    loop: int


@dataclass(frozen=True)
class Move:
    """A partitioner; the message goes on with the successors on the task it moved to.

    With `ways` it stands for several that share it: the first of `args` is the number of a row's way.
    """

    id: int
    region: int
    at: Location
    kind: PartitionKind
    args: tuple[Arg, ...]
    target: str | None = None
    function: Function | None = None
    is_single: bool = False
    ways: tuple[Move, ...] = ()


@dataclass(frozen=True)
class Explode:
    """The records of a source on the tasks that own them, or where `temp` names one, the rows of a temporary PState.

    `is_direct`: each thread starts it with its region.
    """

    id: int
    region: int
    at: Location
    source_id: str
    outs: tuple[str, ...]
    temp: str = ""
    is_direct: bool = False


@dataclass(frozen=True)
class Retain:
    """`materialize`: keeps `args` of each row on its task, as rows of the temporary PState `temp`; the row goes on."""

    id: int
    region: int
    at: Location
    temp: str
    args: tuple[Arg, ...]


@dataclass(frozen=True)
class Select:
    """`local_select`: every row goes on once for each value that the path selects, bound to `outs`.

    `is_capture`: it reads the new value of an aggregation for all rows of post-agg before the first of them goes on.
    `partition` is that of another module's PState; None: the one of the row's task.
    """

    id: int
    region: int
    at: Location
    pstate: str
    path: RecordedPath
    outs: tuple[str, ...]
    is_capture: bool = False
    partition: Arg | None = None


@dataclass(frozen=True)
class Transform:
    """`local_transform`: the path changes the PState on the row's task."""

    id: int
    region: int
    at: Location
    pstate: str
    path: RecordedPath


@dataclass(frozen=True)
class Clear:
    """`local_clear`: resets the PState on the row's task to its initial value."""

    id: int
    region: int
    at: Location
    pstate: str


@dataclass(frozen=True)
class Append:
    """`depot_partition_append`: the value is staged for the depot's partition of the row's task, or for `partition`
    where the depot is another module's.
    """

    id: int
    region: int
    at: Location
    depot: str
    value: Arg
    partition: Arg | None = None


@dataclass(frozen=True)
class Fold:
    """`agg` and `compound_agg` into a PState outside the aggregation of a batch block: at once, on this task."""

    id: int
    region: int
    at: Location
    pstate: str
    tree: AggTree


@dataclass(frozen=True)
class Enter:
    """A batch block begins for this row (task 0 only), once those that came before it are finished; the row waits until
    `block` is finished.
    """

    id: int
    region: int
    at: Location
    block: int


@dataclass(frozen=True)
class Collect:
    """The rows of a batch block that its aggregators take; they wait until the block is finished."""

    id: int
    region: int
    at: Location


@dataclass(frozen=True)
class Gather:
    """One side of a join: rows wait here, with those of the variables `takes` that are read behind, until the region is
    finished. `keeps`: rows without a partner go on, too.
    """

    id: int
    region: int
    at: Location
    on: tuple[Arg, ...]
    takes: tuple[str, ...]
    keeps: bool


@dataclass(frozen=True)
class Invoke:
    """`invoke_query`: every row goes on once, with the result of a query bound to `outs`."""

    id: int
    region: int
    at: Location
    query: str
    args: tuple[Arg, ...]
    outs: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """A row that comes here ends a query; `value` is what it answers."""

    id: int
    region: int
    at: Location
    value: Arg


Operator = Union[
    Start, Apply, Keep, Split, Join, Assign, Move, Explode, Retain, Select, Transform, Clear, Append, Fold, Enter,
    Collect, Gather, Invoke, Answer,
]  # fmt: skip

SEGMENT_ENDS: Final = (Move, Explode, Enter)
"""Rows wait here until all rows of their segment have come; what is behind is another segment."""

# --- regions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """One aggregator of a batch block: into a PState, or into the variable `out`."""

    tree: AggTree
    pstate: str | None
    out: str | None
    at: Location


@dataclass(frozen=True)
class Cut:
    """`limit_agg`: post-agg gets `vars` of the first `amount` rows by `sort`, and their place as `index`."""

    amount: int
    vars: tuple[str, ...]
    sort: tuple[str, ...]
    is_reverse: bool
    index: str | None


@dataclass(frozen=True)
class Region:
    """What is finished together: the chain of a source, a batch block, a sub-batch that aggregates, or a join.

    `start` is its first operator. Of a batch block, `collect` and `outputs` are its aggregation (None and ()
    without one), `keys` those of `group_by` (None without), `captured` the variables of the keys whose new values
    post-agg gets, a row for each (None where it gets a row for each task), `cut` which of the rows it gets (None
    without `limit_agg`), `is_single` whether aggregation and post-agg happen on task 0 only, `post` where post-agg
    begins and `after` what follows the block on task 0 (None where nothing follows). `combines` says whether rows may
    be combined before `final`, the partitioner in front of the aggregation.
    A sub-batch and a join are inside the region `parent`; where `post` begins, their rows go on in it. `sides` are the
    two `Gather`s of a join. A region is finished when no message is under way to the points `waits` and the regions
    `needs` are finished.
    """

    id: int
    kind: Literal["source", "block", "sub", "join"]
    start: int
    source_id: str | None = None
    enter: int | None = None
    collect: int | None = None
    outputs: tuple[Output, ...] = ()
    keys: tuple[str, ...] | None = None
    captured: tuple[str, ...] | None = None
    cut: Cut | None = None
    is_single: bool = False
    final: int | None = None
    combines: bool = False
    post: int | None = None
    after: int | None = None
    explodes: tuple[int, ...] = ()
    parent: int | None = None
    sides: tuple[int, ...] = ()
    waits: frozenset[int] = frozenset()
    needs: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Event:
    """Something that happens on every thread in a superstep after its messages: a region starts or is finished."""

    kind: Literal["start", "finish"]
    region: int


@dataclass(frozen=True)
class Superstep:
    """What happens on every thread after the messages of one superstep, in this order."""

    events: tuple[Event, ...] = ()


# --- points and segments ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProgramSegment:
    """What runs without a message from operator `start` on: by columns, or row by row, and why.

    Row by row, the first operators that touch no state still run by columns, unless `is_strict`.
    """

    start: int
    operators: tuple[int, ...]
    mode: Literal["columns", "rows"]
    reason: str
    is_strict: bool = False


@dataclass(frozen=True)
class PStatePlan:
    """A PState of this topology. `merges` is the aggregation whose operands it may store, None if it is read."""

    name: str
    id: str
    declaration: PStateDeclaration
    merges: AggTree | None = None

    @property
    def schema(self) -> Schema:
        """The declared schema."""
        found: Schema = self.declaration.schema
        return found

    @property
    def layout(self) -> Layout:
        """Where its rows are stored, and the migrations that they may still need."""
        return layout_of(self.schema, self.declaration.steps)


@dataclass(frozen=True)
class AppendTarget:
    """A depot that the topology appends to; a global one has one partition, on task 0. `partitions` are those of
    another module's depot, 0 where it is this module's own. `check` raises what a sink says against a record.
    """

    name: str
    schema: Schema | None
    is_global: bool
    partitions: int = 0
    check: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class MigratedDepot:
    """A depot of a source whose records are read through a function."""

    name: str
    schema: Schema | None
    migration: DepotMigration


@dataclass(frozen=True)
class MirroredQuery:
    """A query of another module with `tasks` tasks. `programs` are it and those that it calls, by name; `plans` and
    `places` the PStates that they read, and where the topology of each is, by their names there.
    """

    module: str
    tasks: int
    query: str
    programs: Mapping[str, Program]
    plans: Mapping[str, PStatePlan]
    places: Mapping[str, str]


@dataclass(frozen=True)
class Program:
    """A compiled topology; picklable by cloudpickle.

    `operators[i].id == i`, and ids rise along every edge but the ways back of loops. `next[i]` are the successors
    of operator i, `live[i]` the variables that somebody reads after it (sorted: also the columns of messages to a
    point), `keeps_order[i]` says for a point whether the order of its rows can be observed. `segments` has one
    entry for each operator where a walk can begin. `schedule` has one entry for each superstep, or is None where
    only the data decides how many there are. `temps` are the temporary PStates that are aggregated into. `reads` maps
    PStates of other topologies to their topology's name, those of the queries that it calls too, `targets` are the
    depots that it appends to, by name. `queries` are all queries that it calls, and those that they call, by name;
    `mirrored` those of other modules that they call, by their names here; `inputs` the variables that a query begins
    with, None for a topology. `objects` are what it uses of the objects of the module. `key` names the program in
    caches of workers, `shape` is a number for the operators and where they lead, the same in each process. `migrated`
    are the depots whose records are read through a function, by name.
    """

    module: str
    topology: str
    operators: tuple[Operator, ...]
    next: tuple[tuple[int, ...], ...]
    live: tuple[tuple[str, ...], ...]
    keeps_order: tuple[bool, ...]
    regions: tuple[Region, ...]
    segments: Mapping[int, ProgramSegment]
    pstates: Mapping[str, PStatePlan]
    temps: Mapping[str, PStatePlan]
    reads: Mapping[str, str]
    others: Mapping[str, PStatePlan]
    schedule: tuple[Superstep, ...] | None
    targets: Mapping[str, AppendTarget] = field(default_factory=dict)
    key: str = field(default="", compare=False)
    shape: int = field(default=0, compare=False)
    queries: Mapping[str, Program] = field(default_factory=dict)
    inputs: tuple[str, ...] | None = None
    migrated: Mapping[str, MigratedDepot] = field(default_factory=dict)
    objects: Mapping[str, DeclaredObject] = field(default_factory=dict)
    mirrored: Mapping[str, MirroredQuery] = field(default_factory=dict)

    @property
    def pins(self) -> tuple[str, ...]:
        """The other topologies of which it reads one commit: those of this module by name, others by their places."""
        places = (place for query in self.mirrored.values() for place in query.places.values())
        return tuple(sorted({*self.reads.values(), *places}))

    def plan_of(self, pstate: str) -> PStatePlan:
        """A PState that the program writes or reads. Raises KeyError for any other."""
        return self.pstates.get(pstate) or self.temps.get(pstate) or self.others[pstate]

    @property
    def sources(self) -> tuple[Region, ...]:
        """The regions of the sources, in the order of their declaration."""
        return tuple(region for region in self.regions if region.kind == "source")
