"""What a navigator is: a record of all that is known of it, and its steps in one path, which know the step after them.

A step is called with (value, argument values, collected values). In a select it gives the hits below, pairs of (value,
collected values), lazily where there may be many. In a transform it gives what shall stand in place of the value:
a new value, ABSENT to remove it, or UNCHANGED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from tidemill.language.dataflow import Function
from tidemill.paths.arguments import NOTHING, ArgumentKinds
from tidemill.paths.budget import Budget
from tidemill.paths.containers import SCALARS, plain
from tidemill.paths.nodes import UNCHANGED, Node
from tidemill.paths.schema_fit import SchemaRule, stays, unknown
from tidemill.values.absent import ABSENT
from tidemill.values.errors import BadPath

Values = Sequence[Any]
Collected = tuple[Any, ...]
Step = Callable[[Any, Values, Collected], Any]
Hits = Iterable[tuple[Any, Collected]]
TransformCall = Callable[[Any, Values], None]
T = TypeVar("T")
Mode = Literal["select", "transform"]


@dataclass(frozen=True)
class Navigator:
    """One navigator, declared once: all that reads paths asks this record. A method of `api.path.Path` records it.

    Attributes:
        steps: makes its steps in one path.
        after: checks it against the schema that it meets, and gives the schema after it.
        options: the keyword options that it takes.
        terminal: it ends a transform, by writing a value as given or what a function makes, or by removing.
        is_repeated: each of its arguments is a navigator of its own: `key("a", "b")` is `key("a").key("b")`.
        is_at_key: a terminal after it writes a key of the map, or an element of the set, around the value.
        is_nowhere: the path ends here, in a select and in a transform.
        is_open: it goes on from the value itself too, so that a transform cannot end in its paths.
        is_identity: it leads from each value to itself, whatever its arguments.
        uses_collected: it reads or changes the collected values.
        is_code: it takes code of the user's, so that it has no JSON form.
        takes_collected: its function is called with the collected values first.
        is_about_elements: its paths meet each element of the list that it meets, and not the list.
        copies: it copies the value that it meets before it looks at it.
        looks_through: it may look at each element of a plain value.
        is_point_key: keys of this kind, down to one indexed element, have fast forms (`paths.points`).
        point: the fast form of a transform that goes on with this navigator where such keys have led.
    """

    name: str
    steps: Callable[[BoundNav, Step, Builder], Steps]
    arguments: ArgumentKinds = NOTHING
    after: SchemaRule = unknown
    options: frozenset[str] = frozenset()
    terminal: Literal["value", "function", "void"] | None = None
    is_repeated: bool = False
    is_at_key: bool = False
    is_nowhere: bool = False
    is_open: bool = False
    is_identity: bool = False
    uses_collected: bool = False
    is_code: bool = False
    takes_collected: bool = False
    is_about_elements: bool = False
    copies: bool = False
    looks_through: bool = False
    is_point_key: bool = False
    point: Callable[[PointPlace], TransformCall | None] | None = None

    @property
    def is_staying(self) -> bool:
        """It goes on with what it meets, so the schema is the same after it."""
        return self.after is stays


@dataclass(frozen=True)
class BoundNav:
    """One navigator of a path with its arguments numbered.

    `slots` are the positions of its plain arguments among the values of a call, `functions` and `paths` its other
    arguments, `branches` those paths that the path goes on with. Options hold values as they are, or a `Slot` where the
    option's value is known only at the call. `at` is the place in the path as its writer wrote it, such as
    `path[2][1]`.
    """

    navigator: Navigator
    slots: tuple[int, ...] = ()
    functions: tuple[Function, ...] = ()
    paths: tuple[tuple[BoundNav, ...], ...] = ()
    branches: tuple[tuple[BoundNav, ...], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    where: str = ""
    at: str = ""

    @property
    def name(self) -> str:
        """The navigator's name in Python, such as `map_vals`."""
        return self.navigator.name

    def option(self, name: str, default: Any = None) -> Any:
        """What the path's writer gave for an option, else `default`; a `Slot` where only the call knows it."""
        return next((value for key, value in self.options if key == name), default)

    def check_arguments(self) -> None:
        """Raises BadPath: there are too few or too many; whoever wrote the path corrects it."""
        count = len(self.slots) + len(self.functions) + len(self.paths)
        wrong = self.navigator.arguments.miscount(count)
        if wrong is not None:
            raise BadPath(f"{self.where}: {self.name} {wrong}", navigator=self.name)


@dataclass(frozen=True)
class Slot:
    """The position of a value among the arguments of a call."""

    index: int

    def of(self, values: Values) -> Any:
        """The argument, out of the values of all arguments of a call."""
        return values[self.index]


@dataclass(frozen=True)
class PointPlace:
    """Where keys lead to in a transform, and the navigators from there on.

    `is_element`: to one indexed element whose value is plain. `is_set`: to a subindexed set.
    """

    slots: tuple[int, ...]
    rest: tuple[BoundNav, ...]
    is_element: bool
    is_set: bool
    where: str


class Steps:
    """The steps of one navigator in one path; `following` is the step after it."""

    def __init__(self, nav: BoundNav, following: Step, builder: Builder) -> None:
        self.nav = nav
        self.name = nav.name
        self.where = nav.where
        self.slots = nav.slots
        self.following = following
        self.budget = builder.budget

    def select(self, value: Any, values: Values, collected: Collected) -> Hits:
        """The hits that the path has from this value on, as pairs of (value, collected values); terminals have none.

        Raises:
            BadPath: the value is not of the kind that the navigator needs, or an argument does not suit it.
        """
        raise NotImplementedError

    def transform(self, value: Any, values: Values, collected: Collected) -> Any:
        """What shall stand in place of this value: a new one, ABSENT to remove it, or UNCHANGED.

        An indexed structure is changed in place, a plain value in a copy.

        Raises:
            BadPath: as in `select`.
            SchemaMismatch: a new value does not fit the schema.
        """
        raise NotImplementedError

    def function(self) -> Callable[..., Any]:
        """The row form of the function argument; containers are copied before the user's code sees them."""
        return self.functions()[0]

    def functions(self) -> list[Callable[..., Any]]:
        """The row forms of all function arguments, as `function`."""
        return [self._counted(function) for function in self.nav.functions]

    def _counted(self, function: Function) -> Callable[..., Any]:
        call = callable_of(function, self.where)
        return call if self.budget is None else self.budget.calling(function.name, call, self.nav.at)

    def metered(self, items: Iterable[T]) -> Iterable[T]:
        """Items that are taken whole before the path goes on."""
        return items if self.budget is None else self.budget.metered(items)


@dataclass(frozen=True)
class Builder:
    """Turns bound paths into steps, last navigator first; each visit counts where there is a budget."""

    mode: Mode
    budget: Budget | None = None

    def chain(self, path: Sequence[BoundNav], last: Step) -> Step:
        """The navigators of a path as one step, which goes on with the step `last`.

        Raises:
            BadPath: a terminal is in a select, or a navigator cannot take its arguments.
        """
        step = last
        for nav in reversed(path):
            if nav.navigator.terminal and self.mode == "select":
                raise BadPath(f"{nav.where}: {nav.name} changes state, it cannot be in a select", navigator=nav.name)
            steps = self._made(nav, step)
            step = steps.select if self.mode == "select" else steps.transform
            if self.budget is not None:
                known = nav.navigator
                step = self.budget.stepping(nav.at, step, copies=known.copies, looks_through=known.looks_through)
        return step

    def _made(self, nav: BoundNav, step: Step) -> Steps:
        try:
            nav.check_arguments()
            return nav.navigator.steps(nav, step, self)
        except BadPath as error:
            error.context.setdefault("at", nav.at)
            raise

    def condition(self, path: Sequence[BoundNav], *, is_copied: bool = False) -> Step:
        """The path as a select of its own, whatever the path around it does; whether all its hits will be copied."""
        last = hit if self.budget is None or not is_copied else self._charged_hit
        return Builder("select", self.budget).chain(path, last)

    def _charged_hit(self, value: Any, values: Values, collected: Collected) -> Hits:
        if self.budget is not None:
            self.budget.result(value, collected)
        return hit(value, values, collected)

    def replacement(self, path: Sequence[BoundNav]) -> Step:
        """The path as a transform of its own; it ends in a terminal."""
        check_ends(path)
        return Builder("transform", self.budget).chain(path, unterminated)


def callable_of(function: Function, where: str) -> Callable[..., Any]:
    """The row form of a function in a path: one result for each call.

    Raises:
        BadPath: it emits any number of rows, or works on columns.
    """
    if function.kind == "operation":
        raise BadPath(
            f"{where}: {function.name} is an operation; paths call functions of one result", name=function.name
        )
    if function.kind == "vectorized":
        raise BadPath(f"{where}: {function.name} works on columns; paths call functions of values", name=function.name)
    return function.call


def hit(value: Any, values: Values, collected: Collected) -> Hits:
    """The step after the last navigator of a select."""
    return ((value, collected),)


_OPEN: Final = "a transform needs a terminal at its end: term, term_val or term_void"


def unterminated(value: Any, values: Values, collected: Collected) -> Any:
    """The step after a terminal, never taken: `check_ends` refuses other paths before they run."""
    raise BadPath(_OPEN)


def check_ends(path: Sequence[BoundNav], where: str = "") -> None:
    """Refuse a transform that does not end in a terminal, in every branch, or goes on after one.

    Raises:
        BadPath: whoever wrote the path adds or moves the terminal.
    """
    for nav in path[:-1]:
        if nav.navigator.terminal:
            raise BadPath(f"{nav.where}: {nav.name} must be the last navigator of its path", navigator=nav.name)
    if not (path and _ends(path[-1])):
        where = path[-1].where if path else where
        raise BadPath(f"{where}: {_OPEN}", pstate=where)


def _ends(nav: BoundNav) -> bool:
    if nav.navigator.terminal or nav.navigator.is_nowhere:
        return True
    return bool(nav.branches) and not nav.navigator.is_open and all(path and _ends(path[-1]) for path in nav.branches)


def selects_any(step: Step, value: Any, values: Values, collected: Collected) -> bool:
    """Whether a select step has at least one hit; looks no further than the first."""
    return any(True for _ in step(value, values, collected))


def change_entry(container: Any, key: Any, old: Any, new: Any, where: str) -> None:
    """Bring what a transform made of the value at a key back into its container."""
    if new is UNCHANGED:
        return
    if new is ABSENT:
        container.delete(key)
    elif isinstance(old, Node):
        old.replace(new, where)
    else:
        container.put(key, new)


def pair_of(new: Any, steps: Steps, rule: str) -> tuple[Any, Any] | None:
    """The key, or the index, and the element that a transform made of such a pair; None where the pair is gone, itself
    or one half of it.

    Raises:
        BadPath: it is no pair; `rule` is the error's sentence of what it can be.
    """
    if new is ABSENT or (isinstance(new, (list, tuple)) and len(new) < 2):
        return None
    if not isinstance(new, (list, tuple)) or len(new) != 2:
        raise BadPath(f"{steps.where}: {rule}, not {new!r}", navigator=steps.name)
    return new[0], new[1]


def private(value: Any, where: str) -> Any:
    """What the user's functions get: a plain value that they may even change without harm."""
    return value if type(value) in SCALARS else plain(value, where)
