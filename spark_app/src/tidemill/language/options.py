"""The registry of dynamic options: what a person may change while a module runs, without a restart.

An edit holds from the next range that is fixed. A value is looked up at the object, then at the module, then here
(`resolve`). Docs, the command line, the web page and the Kubernetes schema are generated from this registry.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tidemill.values.errors import OptionError

Scope = Literal["module", "topology", "depot", "pstate"]
OptionType = Literal["int", "float", "bool", "str"]
SCOPES: Final[tuple[Scope, ...]] = ("module", "topology", "depot", "pstate")
ENGINES: Final = ("local", "spark", "inline")
ANY: Final = "any"


@dataclass(frozen=True)
class Option:
    """One option. `scope` is where it belongs; it may be set there or on the module.

    `default` None means "not set". `meaning` says per engine what it does there; an engine that is not named behaves as
    "any" says, and an empty text says that the option does not matter on that engine.
    """

    name: str
    type: OptionType
    default: Any
    help: str
    scope: Scope = "topology"
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    meaning: Mapping[str, str] = field(default_factory=dict)
    is_of_owner: bool = False
    """Whether, of a depot that is mirrored, only the module that owns it decides: the option says what is kept."""

    def meaning_on(self, engine: str) -> str:
        """What the option does on `engine`; empty if it does not matter there."""
        return self.meaning.get(engine, self.meaning.get(ANY, self.help))

    @property
    def bounds(self) -> str:
        """The values allowed, as a person reads them."""
        if self.choices:
            return " | ".join(self.choices)
        if self.type == "bool":
            return "true | false"
        low = "" if self.minimum is None else f"{self.minimum:.15g}"
        high = "" if self.maximum is None else f"{self.maximum:.15g}"
        return f"{low}..{high}"


def _option(name: str, default: Any, unit: str, bounds: tuple[float, float], text: str, **more: Any) -> Option:
    kind: OptionType = "float" if isinstance(default, float) else "int"
    return Option(name, kind, default, text, unit=unit, minimum=bounds[0], maximum=bounds[1], **more)


NO_EFFECT: Final[Mapping[str, str]] = {ANY: ""}
"""The meaning of options that modules of Rama set and that cannot matter here; their help says why."""

_NO_ACKS: Final = (
    "Accepted and without effect: Rama gathers acknowledgements of tasks in a tree; here each thread reports once "
    "a superstep."
)
_DAY_MILLIS: Final = 86_400_000

_ALL: Final = (
    _option("depot.microbatch.max.records", 100_000, "records", (1, 1_000_000_000),
            "Most records of one depot partition in one microbatch.", scope="depot"),
    _option("depot.max.fetch", 10_000, "records", (1, 100_000_000),
            "Most records decoded at a time while a depot is read, but always one segment: at so many beside the "
            "wanted ones, segments are let go.", scope="depot"),
    _option("depot.max.entries.per.partition", None, "records", (1, 1_000_000_000_000),
            "Records kept per depot partition; older ones that no topology needs are deleted. Not set: all.",
            scope="depot", is_of_owner=True),
    _option("depot.excess.proportion", 0.25, "share", (0, 10),
            "How much more than the maximum stays stored, so that a start at the oldest record is safe.",
            scope="depot", is_of_owner=True),
    _option("depot.trim.coordinate.remote.seconds", 604_800, "seconds", (0, 1_000_000_000),
            "How long records past the maximum are kept for a module that mirrors the depot and commits nothing.",
            scope="depot", is_of_owner=True),
    _option("topology.microbatch.phase.timeout.seconds", 300.0, "seconds", (0.01, 86_400),
            "Longest time of each phase; past it the attempt fails and is tried again."),
    _option("topology.microbatch.empty.sleep.time.millis", 10_000, "milliseconds", (1, _DAY_MILLIS),
            "Pace of attempts without records; new data or a due tick wakes the runner at once."),
    _option("topology.microbatch.force.delay.millis", 0, "milliseconds", (0, _DAY_MILLIS),
            "Least time from the end of one microbatch to the start of the next: fewer, larger ones."),
    _option("topology.microbatch.pstate.flush.path.count", 100_000, "elements", (1, 1_000_000_000),
            "Changed elements that a task holds in memory before it spills a sorted chunk."),
    _option("topology.microbatch.materialized.max.bytes", 1_073_741_824, "bytes", (1, 1_000_000_000_000),
            "Bytes of rows of materialize and of temporary PStates that one thread holds; past it the attempt fails."),
    _option("topology.microbatch.superstep.limit", 10_000, "supersteps", (1, 1_000_000_000),
            "Supersteps of one microbatch after which the attempt fails: a loop that never ends is noticed."),
    _option("topology.query.timeout.millis", 10_000, "milliseconds", (1, _DAY_MILLIS),
            "Longest time of one call of a query, with the queries that it calls; on a topology, of those it calls."),
    _option("topology.query.max.rows", 1_000_000, "rows", (1, 1_000_000_000),
            "Rows that the steps of one call of a query make, with the queries that it calls."),
    _option("topology.query.max.mb", 128, "megabytes", (1, 1_000_000),
            "Megabytes of the values that the steps of one call of a query make, with the queries that it calls."),
    _option("worker.combined.transfer.limit", 65_536, "rows", (1, 100_000_000),
            "Rows in one shuffle record from one task to one thread.", scope="module",
            meaning={"local": "", "inline": ""}),
    _option("topology.combiner.limit", 100_000, "aggregations", (1, 1_000_000_000),
            "Rows combined before a partitioner after which the partial results of a combiner with "
            "is_flush_required() are sent on.", meaning={"local": "", "inline": ""}),
    _option("topology.microbatch.ack.branching.factor", 16, "reports", (2, 65_536),
            _NO_ACKS, meaning=NO_EFFECT),
    _option("topology.microbatch.ack.delay.base.millis", 5, "milliseconds", (0, 60_000),
            _NO_ACKS, meaning=NO_EFFECT),
    _option("topology.microbatch.ack.delay.step.millis", 5, "milliseconds", (0, 60_000),
            _NO_ACKS, meaning=NO_EFFECT),
    Option("topology.microbatch.placement", "str", "auto",
           "Where supersteps run: over all threads, fused in one Spark task, inline in the driver; auto goes by size.",
           choices=("auto", "spread", "fused", "inline"), meaning={"local": ""}),
    _option("topology.microbatch.retry.delay.base.millis", 100, "milliseconds", (0, 3_600_000),
            "Wait before the second attempt of a microbatch; it doubles from attempt to attempt."),
    _option("topology.microbatch.retry.delay.max.millis", 30_000, "milliseconds", (0, _DAY_MILLIS),
            "Longest wait between two attempts of a microbatch."),
    Option("topology.on.record.error", "str", "retry",
           "What becomes of a record at which the module's code raises: its microbatch is tried again until the code "
           "is mended, or it is committed without the record, which goes to the topology's quarantine.",
           choices=("retry", "quarantine")),
    _option("topology.quarantine.microbatch.max.records", 20, "records", (1, 200),
            "Records of one microbatch that go to the quarantine; with more of them the microbatch is tried again."),
    _option("topology.quarantine.microbatch.max.share", 1.0, "share", (0, 1),
            "Share of the records of one microbatch that goes to the quarantine, but always one record; with more of "
            "them the microbatch is tried again."),
    _option("topology.quarantine.max.records", 10_000, "records", (1, 100_000),
            "Records that the quarantine holds, from the oldest that nobody decided on; past it no more go there."),
    _option("store.snapshot.retention.seconds", 600, "seconds", (0, 31_536_000),
            "How long an entry that was committed can still be read after a newer one replaced it."),
    _option("store.collection.period.seconds", 60, "seconds", (1, 86_400),
            "Pace at which objects that nothing names are deleted."),
)  # fmt: skip

OPTIONS: Final[Mapping[str, Option]] = {option.name: option for option in _ALL}

Values = Mapping[tuple[str, str], Mapping[str, Any]]
"""What people set: (scope, object) -> name -> value; the object of scope "module" is the empty string."""

OptionTarget = tuple[str, str, str]
"""Where an option is set: (scope, object, option)."""


@dataclass(frozen=True)
class ModuleOptions:
    """What people set: options, and for each paused topology the number of the entry that paused it.

    `managed` maps (scope, object, option) to the resource that decides it; whether a topology is paused is the option
    `paused` there.
    """

    number: int = 0
    values: Values = field(default_factory=dict)
    paused: Mapping[str, int] = field(default_factory=dict)
    managed: Mapping[OptionTarget, str] = field(default_factory=dict)


def find_option(name: str) -> Option:
    """The option of this name.

    Raises:
        OptionError: there is none; the text suggests names that look like it.
    """
    option = OPTIONS.get(name)
    if option is None:
        near = difflib.get_close_matches(name, OPTIONS, n=2, cutoff=0.8)
        hint = f" Did you mean {' or '.join(near)}?" if near else " `tidemill options list` shows all of them."
        raise OptionError(f"there is no option {name!r}.{hint}", option=name)
    return option


def check_value(name: str, value: Any) -> Any:
    """The value as the option stores it: of the option's type and within its bounds.

    Raises:
        OptionError: the option is unknown, or the value is of another type or out of bounds.
    """
    option = find_option(name)
    value = _typed(option, value)
    is_low = option.minimum is not None and isinstance(value, (int, float)) and value < option.minimum
    is_high = option.maximum is not None and isinstance(value, (int, float)) and value > option.maximum
    if is_low or is_high or (option.choices and value not in option.choices):
        raise OptionError(f"{name} must be in {option.bounds} {option.unit}".rstrip() + f", not {value!r}", option=name)
    return value


def _typed(option: Option, value: Any) -> Any:
    if option.type == "bool" and isinstance(value, bool):
        return value
    if option.type == "str" and isinstance(value, str):
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if option.type == "float" and is_number and value == value:
        return float(value)
    if option.type == "int" and is_number and value == value and abs(value) != float("inf") and int(value) == value:
        return int(value)
    raise OptionError(f"{option.name} takes {_A[option.type]}, not {value!r}", option=option.name)


_A: Final = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}


def check_scope(name: str, scope: str, target: str) -> None:
    """An option may be set at or above its own kind of object: there, or on the module.

    Raises:
        OptionError: the option does not belong to this kind of object, or the object's name is missing.
    """
    option = find_option(name)
    if scope not in SCOPES:
        raise OptionError(f"an option is set on a {', '.join(SCOPES)}, not on a {scope!r}", option=name)
    if scope not in ("module", option.scope):
        allowed = "the module" if option.scope == "module" else f"a {option.scope} or the module"
        raise OptionError(f"{name} can be set on {allowed}, not on a {scope}", option=name)
    if (scope == "module") != (target == ""):
        raise OptionError(
            f"{name}: name the {scope} to set it on" if target == "" else "a module needs no name", option=name
        )


def resolve(name: str, values: Values, target: str = "") -> Any:
    """The value that holds now for the object `target` of the option's own kind: object, then module, then default.

    Raises:
        OptionError: the option is unknown.
    """
    option = find_option(name)
    for place in ((option.scope, target), ("module", "")):
        if target or place[0] == "module":
            chosen = values.get(place, {}).get(name)
            if chosen is not None:
                return chosen
    return option.default


def resolve_all(scope: Scope, values: Values, target: str = "") -> dict[str, Any]:
    """Every option of a kind of object as it holds for `target`."""
    return {name: resolve(name, values, target) for name, option in OPTIONS.items() if option.scope == scope}


def with_value(values: Values, scope: str, target: str, name: str, value: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """A copy of `values` with one more setting; `value` None takes the setting away."""
    copy = {place: dict(settings) for place, settings in values.items()}
    settings = copy.setdefault((scope, target), {})
    settings.pop(name, None)
    if value is not None:
        settings[name] = value
    return {place: settings for place, settings in copy.items() if settings}


def settings(values: Values) -> Iterator[tuple[str, str, str, Any]]:
    """Each setting as (scope, object, option, value), sorted."""
    for (scope, target), chosen in sorted(values.items()):
        for name, value in sorted(chosen.items()):
            yield scope, target, name, value
