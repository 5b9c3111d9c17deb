# ruff: noqa: E501 - tables of texts
"""Random well-formed programs, as the Python text that a user would write, with the records that they get.

The rules by which a program has one right result (or several, all of them promised) are in `oracle_comparison`; here is
what is never written, because no two implementations need agree on it: comparisons of values of different types, sums
of floats that round, random numbers, global PStates off task 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import oracle_functions
from hypothesis import strategies as st
from oracle_pstates import NESTED, NUMBERS, TEMPLATES, VALUE, Template
from oracle_words import ALIKE, CLASSES, CONSTANTS, EACH, EXPRESSIONS, INTO_VARIABLES, MOVES, ODD

import tidemill

Env = dict[str, str]
NAMES = ("a", "b", "c", "é")
KINDS = ("row", "number", "dict")
TASKS, THREADS = (1, 2, 4, 8), (1, 2, 3)
HOLE = re.compile(r"<(\w+)>")
_HEAD = "from tidemill import *\nfrom oracle_functions import *\n\n"


@dataclass
class Program:
    """The text of a module, and what happens to it: in each round depots get records, then topologies run in order.

    `outlets` are the depots that topologies append to, `ticks` those that tick, in the rounds in which they get a record.
    """

    source: str
    topologies: tuple[str, ...]
    rounds: list[dict[str, list[Any]]]
    tasks: int = 1
    threads: int = 1
    is_reversed: bool = False
    outlets: tuple[str, ...] = ()
    ticks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        order = "reversed(topologies)" if self.is_reversed else "topologies"
        fed = "\n".join(f"#   {feeds!r}, then {order}" for feeds in self.rounds)
        return f"\n{self.source}\n# {self.tasks} tasks, {self.threads} threads\n{fed}\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """As hypothesis prints it."""
        printer.text(repr(self))

    def module(self) -> Any:
        """The module that the text defines."""
        space: dict[str, Any] = {
            "nan": math.nan, "inf": math.inf, "__name__": "oracle_program",
            **{name: getattr(tidemill, name) for name in tidemill.__all__}, **vars(oracle_functions),
        }  # fmt: skip
        exec(compile(self.source.removeprefix(_HEAD), "<program>", "exec"), space)
        return space["Made"]()


# --- records ---------------------------------------------------------------------------------------------------------

odd_values = st.sampled_from(ODD) | st.sampled_from(ALIKE)
numbers = st.integers(-4, 6)
names = st.sampled_from(NAMES)
_RECORDS: dict[str, st.SearchStrategy[Any]] = {
    "row": st.tuples(names, numbers, odd_values).map(list),
    "number": numbers,
    "dict": st.one_of(
        st.fixed_dictionaries({"k": names, "v": numbers, "x": odd_values}),
        st.fixed_dictionaries({"k": names, "v": numbers}),
    ),
}
_PARSED = {
    "row": '.each(Ops.EXPAND, "{r}").out("{k}", "{v}", "{x}")',
    "number": '.each(Ops.IDENTITY, "{r}").out("{v}").each(name_of, "{v}").out("{k}").each(half, "{v}").out("{x}")',
    "dict": (
        '.each(Ops.MUST_GET, "{r}", "k").out("{k}").each(Ops.GET, "{r}", "v").out("{v}")'
        '.each(Ops.GET, "{r}", "x").out("{x}")'
    ),
}
_PARSED["tick"] = _PARSED["number"].replace('"{r}").out("{v}")', 'Expr(small, "{r}")).out("{v}")')
_DEPOTS = {
    "row": ("Depot.random()", "Depot.hash_by(Ops.FIRST)"),
    "number": ("Depot.random()", "Depot.hash_by(Ops.IDENTITY)", "Depot.random()).global_("),
    "dict": ("Depot.random()", 'Depot.hash_by("k")'),
}


# --- one chain -------------------------------------------------------------------------------------------------------


@dataclass
class Place:
    """Where the next node stands: what is bound, and what may stand here.

    `phase` is plain, pre or post; `is_zero` says that rows are on task 0. `depth` bounds how deep blocks nest.
    """

    env: Env
    phase: str = "plain"
    is_zero: bool = False
    depth: int = 2
    microbatch: str = ""

    def inside(self, **changes: Any) -> Place:
        given = {"env": dict(self.env), "phase": self.phase, "is_zero": self.is_zero, "depth": self.depth - 1,
                 "microbatch": self.microbatch}  # fmt: skip
        return Place(**{**given, **changes})


@dataclass
class Writer:
    """Writes one program by drawing from hypothesis.

    `own` and `others` are the PStates that a topology may write and read, `kept` the materialized rows of the chain with
    the types of their values, `counted` its temporary PStates.
    """

    draw: Any
    own: dict[str, Template] = field(default_factory=dict)
    others: dict[str, Template] = field(default_factory=dict)
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    counted: list[str] = field(default_factory=list)
    outlets: tuple[str, ...] = ()
    queries: list[str] = field(default_factory=list)
    is_query: bool = False
    captured: list[str] = field(default_factory=list)
    kind: str = ""
    count: int = 0

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(0, one_in - 1)) == one_in - 1)

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"*{kind[0]}{self.count}"

    # --- expressions ---

    def fill(self, text: str, env: Env) -> str:
        """The text with its holes filled."""
        return HOLE.sub(lambda hole: self.expression(hole[1], env), text)

    def variable(self, kind: str, env: Env) -> str | None:
        """A variable of a type, if one is bound."""
        known = [name for name, found in env.items() if found == kind or (kind == "any" and found != "big")]
        return f'"{self.pick(known)}"' if known else None

    def expression(self, kind: str, env: Env, depth: int = 2) -> str:
        """An expression of a type."""
        if kind in ("name", "name2"):
            return repr(self.pick(NAMES))
        if kind == "n":
            return str(self.number(0, 3))
        if kind == "constant":
            return str(self.number(-3, 3))
        known = self.variable(kind, env) if kind in ("str", "int", "any", "bool", "list", "big") else None
        if known is not None and self.number(0, 2) < 2:
            return known
        forms = [form for form in EXPRESSIONS[kind] if not (self.is_query and "MICROBATCH" in form)]
        text = self.pick(forms[: 1 + (len(forms) - 1) * (depth > 0)])
        return HOLE.sub(lambda hole: self.expression(hole[1], env, depth - 1), text)

    def condition(self, env: Env) -> str:
        return HOLE.sub(lambda hole: self.expression(hole[1], env, 1), self.pick(EXPRESSIONS["bool"]))

    def out(self, kind: str, place: Place) -> str:
        """A variable to bind: sometimes one that is bound already, where it may be bound anew."""
        known = [name for name, found in place.env.items() if found == kind and not name.startswith("**")]
        if known and place.phase != "pre" and self.chance(4):
            return str(self.pick(known))
        name = self.fresh(kind)
        place.env[name] = kind
        return name

    # --- nodes ---

    def block(self, place: Place, size: int = 3) -> str:
        """Nodes as a block of their own; `place` is then where they end."""
        return f"Block{self.nodes(place, size) or '.each(Ops.IDENTITY, 0)'}"

    def nodes(self, place: Place, size: int = 3) -> str:
        return "".join(self.node(place) for _ in range(self.number(0, size)))

    def node(self, place: Place) -> str:
        kinds = ["each", "each", "state", "state", "state", "keep"]
        kinds += ["append"] if self.outlets and not self.is_query else []
        kinds += ["ask"] if self.queries else []
        if place.phase != "post":
            kinds += ["move", "move"]
            kinds += ["stream"]
        if place.depth > 0:
            kinds += ["if", "same", "loop", "branch", "atomic", "macro", "rounds", "graph", "cond", "sub_source"]
            kinds += ["block"] if place.phase == "plain" and place.microbatch else []
        text: str = getattr(self, f"_{self.pick(kinds)}")(place)
        return text

    def _each(self, place: Place) -> str:
        form, kinds = self.pick(EACH)
        text = self.fill(form, place.env)
        outs = [self.out(kind, place) for kind in kinds]
        while len(set(outs)) < len(outs):
            outs[-1] = self.fresh(kinds[-1])
            place.env[outs[-1]] = kinds[-1]
        return text + (".out(" + ", ".join(f'"{name}"' for name in outs) + ")" if outs else "")

    def _append(self, place: Place) -> str:
        record = self.fill("Expr(Ops.TUPLE, <str>, <int>, <any>)", place.env)
        return f'.depot_partition_append("{self.pick(self.outlets)}", {record})'

    def _ask(self, place: Place) -> str:
        argument = self.expression("str", place.env)
        return f'.invoke_query("{self.pick(self.queries)}", {argument}).out("{self.out("any", place)}")'

    def _keep(self, place: Place) -> str:
        return f".keep_true({self.condition(place.env)})"

    def _move(self, place: Place) -> str:
        keyed = [name for name, found in self.own.items() if found in (NUMBERS, NESTED)]
        if keyed and self.chance(6):
            place.is_zero = False
            return self.fill(f'.path_partition("{self.pick(keyed)}", Path.key(<str>))', place.env)
        form = self.fill(self.pick(MOVES), place.env)
        place.is_zero = form.startswith(".global")
        return form

    def _if(self, place: Place) -> str:
        condition = self.condition(place.env)
        then, other = place.inside(), place.inside()
        text = f".if_true({condition}, {self.block(then)}"
        if self.chance(2):
            text += f", {self.block(other)}"
        self._meet(place, [then, other])
        return text + ")"

    def _same(self, place: Place) -> str:
        """Both ways bind the same variable."""
        kind = self.pick(("int", "str", "any"))
        name = self.out(kind, place)
        bound = {key: found for key, found in place.env.items() if key != name or place.phase != "pre"}
        ways = [place.inside(env=dict(bound)) for _ in range(2)]
        if name in ways[0].env and self.count and name == f"*{kind[0]}{self.count}":
            for way in ways:
                way.env.pop(name, None)
        condition = self.condition(ways[0].env)
        blocks = [
            f'{self.block(way, 2)}.each(Ops.IDENTITY, {self.expression(kind, way.env)}).out("{name}")' for way in ways
        ]
        place.is_zero = all(way.is_zero for way in ways)
        return f".if_true({condition}, {blocks[0]}, {blocks[1]})"

    def _cond(self, place: Place) -> str:
        ways, cases = [], []
        for _ in range(self.number(1, 3)):
            way = place.inside()
            cases.append(f"Case.create({self.condition(place.env)}){self.nodes(way, 2) or '.each(Ops.IDENTITY, 0)'}")
            ways.append(way)
        self._meet(place, [*ways, place])
        return f".cond({', '.join(cases)})"

    def _sub_source(self, place: Place) -> str:
        """Cases by constants, functions and classes, in this order, so that none hides another."""
        takers: list[str] = []
        for known, most in ((CONSTANTS, 2), (("is_odd_one", "Ops.IS_NULL"), 1), (CLASSES, 3)):
            takers += self.draw(st.lists(st.sampled_from(known), max_size=most, unique=True))
        if not takers or not self.chance(9):  # else a value may meet no case, which fails the microbatch
            takers.append("object")
        ways, cases = [], []
        for taker in takers:
            ways.append(place.inside())
            cases.append(f"SubSource.create({taker}){self.nodes(ways[-1], 2) or '.each(Ops.IDENTITY, 0)'}")
        value = self.variable("any", place.env) or self.expression("any", place.env)
        value = value if value.startswith(('"', "Expr(")) else f"Expr(Ops.IDENTITY, {value})"
        self._meet(place, ways)
        return f".sub_source({value}, {', '.join(cases)})"

    def _stream(self, place: Place) -> str:
        """An operation that emits to a stream, whose rows go on beside the others, or together with them."""
        text = self.fill(".each(sorted_out, <any>)", place.env)
        value, number = self.fresh("any"), self.fresh("int")
        stream, rest = f"s{self.count}", f"u{self.count}"
        text += f'.out_stream("odd", "{stream}", "{value}", "{number}").out("{value}")'
        place.env[value] = "any"
        if self.chance(2):
            beside = place.inside()
            beside.env[number] = "int"
            return text + (f'.branch("{stream}", {self.block(beside)})' if place.depth > 0 else "")
        return text + f'.anchor("{rest}").unify("{stream}", "{rest}")'

    def _block(self, place: Place) -> str:
        """A batch block in a case, a loop or a branch; what it makes for later ones is not known behind that."""
        text = "" if place.is_zero else ".global_partition()"
        place.is_zero = True
        kept, counted = dict(self.kept), list(self.counted)
        text += f".batch_block({self.batch(place.microbatch, self.kind, place)})"
        self.kept, self.counted = kept, counted
        return text

    def _meet(self, place: Place, ways: Sequence[Place]) -> None:
        place.is_zero = all(way.is_zero for way in ways)

    def _loop(self, place: Place) -> str:
        counter, after = self.fresh("int"), self.fresh("int")
        inner = place.inside(is_zero=False)
        inner.env[counter] = "int"
        body = self.nodes(inner, 2)
        again = inner.inside()
        more = self.nodes(again, 2)
        limit = self.number(0, 2)
        text = (
            f'.loop_with_vars(LoopVars.var("{counter}", 0), Block{body}.if_true(Expr(Ops.LESS_THAN, "{counter}", {limit}),'
            f' Block{more}.continue_loop(Expr(Ops.INC, "{counter}")), Block.emit_loop("{counter}"))'
        )
        place.env[after] = "int"
        place.is_zero = False
        return text + f').out("{after}")'

    def _branch(self, place: Place) -> str:
        return f".branch({self.block(place.inside())})"

    def _atomic(self, place: Place) -> str:
        return f".atomic_block({self.block(place.inside())})"

    def _macro(self, place: Place) -> str:
        return f".macro({self.block(place)})"

    def _rounds(self, place: Place) -> str:
        place.is_zero = False  # a loop without variables, which its first round leaves
        return f".loop({self.block(place.inside())}.emit_loop())"

    def _graph(self, place: Place) -> str:
        """Anchors, hooks, and what brings them together."""
        self.count += 1
        first, second, third = (f"{letter}{self.count}" for letter in "xyz")
        left, right = place.inside(), place.inside()
        text = f'.anchor("{first}"){self.nodes(left, 2)}'
        if self.chance(2):
            place.env, place.is_zero = left.env, left.is_zero
            return text + f'.branch("{first}", {self.block(right)})'
        text += f'.anchor("{second}").hook("{first}"){self.nodes(right, 2)}.anchor("{third}")'
        place.is_zero = left.is_zero and right.is_zero
        return text + f'.unify("{second}", "{third}")'

    # --- PStates ---

    def _state(self, place: Place) -> str:
        if self.is_query:
            fitting = {name: found for name, found in self.own.items() if place.is_zero or not found.is_global}
            if not fitting:
                return self._each(place)
            name = self.pick(sorted(fitting))
            is_written = name.endswith("$$") and self.chance(2)
            return (self._transform if is_written else self._select)(place, name, fitting[name])
        kinds = ["select", "select", "select"]
        if place.phase != "pre":
            kinds += ["aggregate", "aggregate", "aggregate"]
        kind = self.pick([*kinds, "transform", "transform", "clear"])
        reach = {**self.own, **self.others} if kind == "select" else self.own
        fitting = {name: found for name, found in reach.items() if place.is_zero or not found.is_global}
        if not fitting:
            return self._each(place)
        name = self.pick(sorted(fitting))
        return str(getattr(self, f"_{kind}")(place, name, fitting[name]))

    def _select(self, place: Place, name: str, found: Template) -> str:
        path, kind = self.pick(found.selects)
        text = self.fill(path, place.env)
        key = re.match(r"Path\.(key|must)\(", path)
        method = "local_select"
        if key and place.phase != "post" and self.chance(2):
            method, place.is_zero = "select", False
        return f'.{method}("{name}", {text}).out("{self.out(kind, place)}")'

    def _transform(self, place: Place, name: str, found: Template) -> str:
        return f'.local_transform("{name}", {self.fill(self.pick(found.transforms), place.env)})'

    def _clear(self, place: Place, name: str, found: Template) -> str:
        return f'.local_clear("{name}")' if self.chance(2) else self._transform(place, name, found)

    def _aggregate(self, place: Place, name: str, found: Template) -> str:
        return self.fill(self.pick(found.aggs), place.env).replace("$$p", name)

    # --- queries ---

    def query(self, name: str) -> list[str]:
        """A query of one text over all PStates."""
        self.is_query, before = True, self.own
        self.own = {**self.own, **self.others, f"$${name}$$": VALUE}
        key, result = self.fresh("str"), self.fresh("any")
        place = Place({key: "str"}, "pre", is_zero=True, depth=1)
        text = self.nodes(place, 2) + self.pick((".all_partition()", f'.hash_partition("{key}")', ""))
        place.is_zero = place.is_zero and text == ""
        text += self._state(place) + self.nodes(place, 1) + ".origin_partition()"
        form, _ = self.pick(INTO_VARIABLES)
        text += f'.agg({self.fill(form, place.env)}).out("{result}").each(text_of, "{result}").out("*answer")'
        self.is_query, self.own = False, before
        self.queries.append(name)
        return [f'        topologies.query("{name}", "{key}").out("*answer"){text}']

    # --- sources ---

    def rows(self, microbatch: str, kind: str, place: Place) -> str:
        """The rows of a source, or rows that a block before kept."""
        if self.kept and self.chance(2):
            name = self.pick(sorted(self.kept))
            outs = [self.fresh(found) for found in self.kept[name]]
            place.env.update(zip(outs, self.kept[name], strict=True))
            place.is_zero = False
            return f'.explode_materialized("{name}").out({", ".join(map(repr, outs))})'
        made = {letter: self.fresh(letter) for letter in "rkvx"}
        place.env.update({made["k"]: "str", made["v"]: "int", made["x"]: "any"})
        place.is_zero = False
        return f'.explode_microbatch("{microbatch}").out("{made["r"]}")' + _PARSED[kind].format(**made)

    def chain(self, microbatch: str, kind: str) -> str:
        """All that follows a source."""
        self.kept, self.counted, self.kind = {}, [], kind
        if self.number(0, 2) < 2:
            place = Place({}, microbatch=microbatch)
            return (
                self.rows(microbatch, kind, place) + self.nodes(place, self.pick((4, 6, 9))) + self.state_at_end(place)
            )
        place = Place({}, is_zero=True, depth=1, microbatch=microbatch)
        text = self.nodes(place, 1) if self.chance(3) else ""
        for _ in range(self.number(1, 3)):
            if not place.is_zero:
                text, place.is_zero = text + ".global_partition()", True
            text += f".batch_block({self.batch(microbatch, kind, place)})"
            text += self.nodes(place, 1) if self.chance(3) else ""
            if self.counted and self.chance(2):
                text += self._read_temporary(place) + self.state_at_end(place)
        if place.is_zero and self.chance(3):  # the rows once more, when all blocks are done
            text += self.rows(microbatch, kind, place) + self.nodes(place, 2) + self.state_at_end(place)
        return text

    def state_at_end(self, place: Place) -> str:
        return self._state(place.inside(phase="plain"))

    def batch(self, microbatch: str, kind: str, outer: Place) -> str:
        """The block of a batch block, in its three phases."""
        kept: dict[str, tuple[str, ...]] = {}
        counted: list[str] = []
        own, self.captured = dict(self.own), []
        text = self._phases(microbatch, kind, outer, kept, counted)
        self.own = own
        self.kept.update(kept)
        self.counted.extend(counted)
        return text

    def _phases(
        self, microbatch: str, kind: str, outer: Place, kept: dict[str, tuple[str, ...]], counted: list[str]
    ) -> str:
        place = outer.inside(phase="pre", depth=1)
        if self.chance(5):
            text = "Block" + self._outer_join(microbatch, kind, outer, place) + self.nodes(place, 2)
        else:
            text = "Block" + self.rows(microbatch, kind, place) + self.nodes(place, 3)
        if self.chance(4):
            text += self._second_source(microbatch, kind, outer, place)
        elif self.chance(3):
            text += self._join(microbatch, kind, outer, place) + self.nodes(place, 2)
        ending = self.pick(("group", "group", "move", "move", "none"))
        if ending == "none":
            return text + self._state(place) + self._keep_rows(place, kept)
        post = Place({}, "post", depth=1, microbatch=microbatch)
        if ending == "group":
            keys = [name for name, found in place.env.items() if found in ("str", "int", "any")]
            chosen = self.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=2, unique=True))
            post.env = {key: place.env[key] for key in chosen}
            body = "".join(self._into_variable(place.env, post) for _ in range(self.number(1, 2)))
            if self.chance(4):
                body += self._limit({name: found for name, found in place.env.items() if name not in chosen}, post)
            shown = ", ".join(f'"{key}"' for key in chosen)
            text += f".group_by({shown}, Block{body})"
        else:
            text += self._final_move(place)
            post.is_zero = place.is_zero
            if self.chance(3):
                text += self._capture(place, post)
            for _ in range(self.number(1, 3)):
                text += self._into_variable(place.env, post) if self.chance(2) else self._into_pstate(place, post)
            if self.chance(3):
                text += self._count_in_temporary(place.env, counted)
            if not self.captured and self.chance(4):
                text += self._limit(place.env, post)
        # Post-agg writes nothing that was captured; unit/test_captured_values.py does.
        self.own = {name: found for name, found in self.own.items() if name not in self.captured}
        # An aggregation that stands directly behind aggregators would be one of them.
        return text + ".each(Ops.IDENTITY, 0)" + self.nodes(post, 2) + self._state(post) + self._keep_rows(post, kept)

    def _keep_rows(self, place: Place, kept: dict[str, tuple[str, ...]]) -> str:
        if not self.chance(2):
            return ""
        self.count += 1
        name = f"$$rows{self.count}"
        kinds = tuple(self.draw(st.lists(st.sampled_from(("str", "int", "any")), min_size=1, max_size=3)))
        kept[name] = kinds
        return f'.materialize({", ".join(self.expression(found, place.env) for found in kinds)}).out("{name}")'

    def _count_in_temporary(self, env: Env, counted: list[str]) -> str:
        self.count += 1
        counted.append(f"$$temp{self.count}")
        form = self.pick(("Agg.count()", "Agg.sum(<int>)", "CompoundAgg.map(<str>, Agg.count())", "Agg.last(<int>)"))
        tree = self.fill(f"CompoundAgg.map(<str>, {form})", env)
        return f'.compound_agg({tree}).out("{counted[-1]}")'

    def _capture(self, place: Place, post: Place) -> str:
        """The new values of the keys that are aggregated into."""
        nested = {NUMBERS: 1, NESTED: 2}
        fitting = {name: nested[found] for name, found in self.own.items() if found in nested}
        keys = [name for name, found in place.env.items() if found == "str"]
        if not fitting or not keys:
            return ""
        name = self.pick(sorted(fitting))
        chosen = [self.pick(keys) for _ in range(fitting[name])]
        value = self.fresh("int")
        form = self.fill(self.pick(("Agg.count()", "Agg.sum(<int>)", "Agg.max(<int>)", "Agg.last(<int>)")), place.env)
        tree = f'{form}.capture_new_val_into("{value}")'
        for key in reversed(chosen):
            tree = f'CompoundAgg.map("{key}", {tree})'
        post.env.update({**dict.fromkeys(chosen, "str"), value: "int"})
        self.captured.append(name)
        return f'.compound_agg("{name}", {tree})'

    def _limit(self, env: Env, post: Place) -> str:
        """A few rows; all variables that are kept are sorted by, so that equal rows are alike."""
        known = [name for name, found in env.items() if found in ("str", "int", "any") and name not in post.env]
        if not known:
            return ""
        kept = self.draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True))
        shown = ", ".join(f'"{name}"' for name in kept)
        text = f"LimitAgg.create({self.number(1, 3)}, {shown}).sort({shown})" + (".reverse()" if self.chance(2) else "")
        post.env.update({name: env[name] for name in kept})
        if self.chance(2):
            index = self.fresh("int")
            post.env[index] = "int"
            text += f'.index_var("{index}")'
        return f".limit_agg({text})"

    # --- joins ---

    def _join(self, microbatch: str, kind: str, outer: Place, place: Place) -> str:
        """Another branch, which is joined on one or two variables; it may be outer."""
        keys = self._join_keys()
        left, right = self.fresh("any"), self.pick(("*", "**")) + self.fresh("any")[1:]
        bound = self._binding({**keys, left: "any"}, place.env)
        if right.startswith("**") or self.chance(2):
            branch = self._sub_batch(microbatch, kind, outer, keys, right)
        else:
            other = outer.inside(phase="pre", depth=1)
            branch = ".fresh_batch_source()" + self.rows(microbatch, kind, other) + self.nodes(other, 1)
            branch += self._binding({**keys, right: "any"}, other.env)
        return bound + branch + self._joined(place, keys, left, right)

    def _outer_join(self, microbatch: str, kind: str, outer: Place, place: Place) -> str:
        """Two sub-batches, the first of them outer."""
        keys = self._join_keys()
        left, right = "*" + self.fresh("any"), self.pick(("*", "**")) + self.fresh("any")[1:]
        text = self._sub_batch(microbatch, kind, outer, keys, left)
        text += self._sub_batch(microbatch, kind, outer, keys, right)
        return text + self._joined(place, keys, left, right)

    def _join_keys(self) -> Env:
        kind = self.pick(("str", "any"))
        return {self.fresh(kind): kind} | ({self.fresh("int"): "int"} if self.chance(3) else {})

    def _binding(self, wanted: Env, env: Env) -> str:
        return "".join(
            f'.each(Ops.IDENTITY, {self.expression(found, env)}).out("{name}")' for name, found in wanted.items()
        )

    def _joined(self, place: Place, keys: Env, left: str, right: str) -> str:
        """The step that needs both sides. On which task its rows are is promised to nobody, so they move.

        Behind a sub-batch that aggregates, variables from outside the block are not bound.
        """
        both = self.fresh("list")
        place.env = {**keys, left: "any", right: "any", both: "list"}
        place.is_zero = False
        return f'.each(pair, "{left}", "{right}").out("{both}").hash_partition("{next(iter(keys))}")'

    def _sub_batch(self, microbatch: str, kind: str, outer: Place, keys: Env, out: str) -> str:
        """A batch block of its own as a source."""
        place = outer.inside(phase="pre", depth=1)
        text = "Block" + self.rows(microbatch, kind, place) + self.nodes(place, 1)
        inner = {self.fresh(found): found for found in keys.values()}
        text += self._binding(inner, place.env)
        post = Place({}, "post", depth=0)
        shown = ", ".join(f'"{name}"' for name in inner)
        value = self._into_variable(place.env, post)
        text += f".group_by({shown}, Block{value})"
        wanted = ", ".join(f'"{name}"' for name in (*inner, *post.env))
        is_big = "big" in post.env.values()  # as a text it may be a part of keys behind the join
        between = "*___" + out.lstrip("*") if is_big or (out.startswith("**") and self.chance(2)) else out
        outs = ", ".join(f'"{name}"' for name in (*keys, between))
        text = f".sub_batch(SubBatch({text}, {wanted})).out({outs})"
        renamed = f'.each({"text_of" if is_big else "Ops.IDENTITY"}, "{between}").out("{out}")'
        return text if between == out else text + renamed

    def _read_temporary(self, place: Place) -> str:
        """All counts, wherever they are."""
        path = self.fill(self.pick(("Path.map_keys()", "Path.view(Ops.SIZE)")), place.env)
        name = self.pick(self.counted)
        place.is_zero = False
        return f'.all_partition().local_select("{name}", {path}.view(as_text)).out("{self.out("any", place)}")'

    def _second_source(self, microbatch: str, kind: str, outer: Place, place: Place) -> str:
        """Other rows of the same microbatch, merged with the first ones by the variables that both bind."""
        self.count += 1
        first, second = f"m{self.count}", f"n{self.count}"
        other = outer.inside(phase="pre", depth=1)
        common = {self.fresh(found): found for found in ("str", "int", "any")}
        bound = [self._binding(common, place.env)]
        rows = self.rows(microbatch, kind, other) + self.nodes(other, 2)
        bound.append(self._binding(common, other.env))
        outside = {name: found for name, found in outer.env.items() if name in place.env}
        place.env, place.is_zero = {**outside, **common}, False
        return f'{bound[0]}.anchor("{first}"){rows}{bound[1]}.anchor("{second}").unify("{first}", "{second}")'

    def _final_move(self, place: Place) -> str:
        form = self.fill(self.pick((".global_partition()", ".hash_partition(<str>)", ".all_partition()")), place.env)
        place.is_zero = form.startswith(".global")
        return form

    def _into_variable(self, env: Env, post: Place) -> str:
        form, kind = self.pick(INTO_VARIABLES)
        name = self.fresh(kind)
        post.env[name] = kind
        return f'.agg({self.fill(form, env)}).out("{name}")'

    def _into_pstate(self, place: Place, post: Place) -> str:
        fitting = {name: found for name, found in self.own.items() if place.is_zero or not found.is_global}
        if not fitting:
            return self._into_variable(place.env, post)
        name = self.pick(sorted(fitting))
        return self._aggregate(place, name, fitting[name])


# --- whole programs --------------------------------------------------------------------------------------------------


@st.composite
def programs(draw: Any) -> Program:
    """A module with one or two topologies, and the records of a few rounds."""
    writer = Writer(draw)
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
    lines = [f'        setup.declare_depot("*depot{i}", {writer.pick(_DEPOTS[kind])})' for i, kind in enumerate(kinds)]
    topologies = tuple(f"t{i}" for i in range(2 if writer.chance(3) else 1))
    if writer.chance(4):
        lines.append('        setup.declare_depot("*outlet", Depot.disallow())')
        writer.outlets = ("*outlet",)
    ticks = ("*tick",) if writer.chance(4) else ()
    lines += [f'        setup.declare_tick_depot("{tick}", 1000)' for tick in ticks]
    for name in topologies:
        lines += _topology(writer, name, kinds, ticks)
    source = _HEAD + "\nclass Made(Module):\n    def define(self, setup, topologies):\n" + "\n".join(lines) + "\n"
    fed = {f"*depot{i}": st.lists(_RECORDS[kind], max_size=writer.pick((1, 6, 6))) for i, kind in enumerate(kinds)}
    feeds = st.fixed_dictionaries(fed | {tick: st.lists(st.none(), max_size=1) for tick in ticks})
    rounds = draw(st.lists(feeds, min_size=1, max_size=3))
    tasks = writer.pick(TASKS)
    threads = writer.pick([count for count in THREADS if count <= tasks])
    return Program(source, topologies, rounds, tasks, threads, writer.chance(2), writer.outlets, ticks)


def _topology(writer: Writer, name: str, kinds: Sequence[str], ticks: Sequence[str]) -> list[str]:
    lines = [f'        {name} = topologies.microbatch("{name}")']
    writer.others.update(writer.own)
    writer.own = {}
    for _ in range(writer.number(1, 3)):
        found = writer.pick(TEMPLATES)
        pstate = f"$${name}p{len(writer.own)}"
        writer.own[pstate] = found
        lines.append(f'        {name}.pstate("{pstate}", {found.schema}){found.options}')
    if writer.chance(2):
        lines += writer.query(f"{name}query")
    if writer.outlets and writer.chance(2):
        text = writer.chain("*taken", "row")
        lines.append(f'        ({name}.source("*outlet").out("*taken")\n           {text})')
    for tick in ticks if writer.chance(2) else ():
        lines.append(f'        ({name}.source("{tick}").out("*ticks")\n           {writer.chain("*ticks", "tick")})')
    for i, kind in enumerate(kinds):
        if i and writer.chance(2):
            continue
        options = ", MicrobatchSourceOptions.start_from_beginning()" if writer.chance(4) else ""
        text = writer.chain(f"*batch{i}", kind)
        lines.append(f'        ({name}.source("*depot{i}"{options}).out("*batch{i}")\n           {text})')
    return lines
