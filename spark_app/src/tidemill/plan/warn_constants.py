"""Texts that look like a variable whose asterisk was forgotten: `.each(Ops.INC, "v")` where there is a `*v`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidemill.language import dataflow as df
from tidemill.language.dataflow import Arg, Const, Function, Location, Node, RecordedExpr
from tidemill.language.operations import Op
from tidemill.language.schema import FixedKeysSchema, MapSchema, Schema
from tidemill.plan.nodes import binds_of
from tidemill.values.errors import Fault

_OF_NUMBERS = frozenset(
    ("INC", "DEC", "INC_LONG", "DEC_LONG", "MINUS", "MINUS_LONG", "PLUS_LONG", "TIMES_LONG", "DIV", "IS_EVEN", "IS_ODD")
)


class ConstantCheck:
    """Looks through the nodes of one source or query, which begin with the variables `names`."""

    def __init__(self, names: Sequence[str], nodes: Sequence[Node], schemas: Mapping[str, Schema]) -> None:
        """`schemas` are those of the PStates: a constant is the rule as a key of a record, and rare as one of a map."""
        self._nodes, self._schemas = nodes, schemas
        self._bound = {*names, *(name for node in nodes for name in _bound(node))}

    def warnings(self) -> Iterator[Fault]:
        """A warning for each constant text that looks like a variable without its asterisk."""
        for node in self._nodes:
            if isinstance(node, df.Each):
                yield from self._call(node.function, node.args, node.at)
            elif isinstance(node, df.Partition):
                yield from self._all(node.args, node.at, f"{node.kind}_partition")
            elif isinstance(node, df.Materialize):
                yield from self._all(node.args, node.at, "materialize")
            elif isinstance(node, df.Aggregate):
                yield from self._tree(node.tree, node.at)
                yield from self._tree_keys(node, node.tree, self._schemas.get(node.pstate or ""))
            elif isinstance(node, (df.LocalSelect, df.LocalTransform)):
                yield from self._path_keys(node, self._schemas.get(node.pstate))
            elif isinstance(node, df.DepotAppend):
                yield from self._all((node.value,), node.at, "depot_partition_append")
            elif isinstance(node, df.InvokeQuery):
                yield from self._all(node.args, node.at, f"The query '{node.query}'")
            for arg in _other_args(node):
                yield from self._inside(arg, node.at)

    def _call(self, function: Function, args: Sequence[Arg], at: Location) -> Iterator[Fault]:
        name = function.name
        if isinstance(function.call, Op) and name in _OF_NUMBERS:
            texts = [arg.value for arg in args if isinstance(arg, Const) and isinstance(arg.value, str)]
            yield from (self._warning(text, f"Ops.{name}", at) for text in texts)
        else:
            yield from self._all(args, at, name)
        for arg in args:
            yield from self._inside(arg, at)

    def _inside(self, arg: Arg, at: Location) -> Iterator[Fault]:
        if isinstance(arg, RecordedExpr):
            yield from self._call(arg.function, arg.args, at)

    def _all(self, args: Sequence[Arg], at: Location, what: str) -> Iterator[Fault]:
        """Where nothing but constants is given, a text that is called like a variable stands for it."""
        constants = [arg.value for arg in args if isinstance(arg, Const)]
        if len(constants) == len(args):
            yield from (self._warning(value, what, at) for value in constants if self._is_name(value))

    def _tree(self, tree: df.AggTree, at: Location) -> Iterator[Fault]:
        if isinstance(tree, df.AggMap):
            for key, inner in tree.entries:
                yield from self._inside(key, at)
                yield from self._tree(inner, at)
        elif isinstance(tree, df.AggList):
            for inner in tree.items:
                yield from self._tree(inner, at)
        else:
            yield from self._all(tree.args, at, f"Agg.{tree.name}")

    def _tree_keys(self, node: df.Aggregate, tree: df.AggTree, schema: Schema | None) -> Iterator[Fault]:
        """The keys under which an aggregation writes, of maps; `schema` is what the PState holds here."""
        for key, inner in tree.entries if isinstance(tree, df.AggMap) else ():
            if isinstance(schema, MapSchema):
                yield from self._key(key, node.pstate, node.at)
            yield from self._tree_keys(node, inner, _below(schema, key))

    def _path_keys(self, node: df.LocalSelect | df.LocalTransform, schema: Schema | None) -> Iterator[Fault]:
        """The keys with which a path begins, as far as they are those of maps."""
        for nav in node.path.navs:
            for key in nav.args if nav.name in ("key", "must") else ():
                if isinstance(schema, MapSchema):
                    yield from self._key(key, node.pstate, node.at)
                schema = _below(schema, key)
            if nav.name not in ("key", "must"):
                return

    def _key(self, key: Arg, pstate: str | None, at: Location) -> Iterator[Fault]:
        if isinstance(key, Const) and self._is_name(key.value):
            text = f"The key of '{pstate}' is the text {key.value!r} in every row."
            yield Fault(str(at), text, f'Write "*{key.value}" for the variable.')

    def _is_name(self, value: object) -> bool:
        return isinstance(value, str) and f"*{value}" in self._bound

    def _warning(self, text: str, what: str, at: Location) -> Fault:
        meant = f'Write "*{text}" for the variable.' if self._is_name(text) else "Write a variable, or a number."
        return Fault(str(at), f"{what} is given the text {text!r} in every row.", meant)


def _below(schema: Schema | None, key: Arg) -> Schema | None:
    if isinstance(schema, FixedKeysSchema):
        return schema.field(key.value) if isinstance(key, Const) else None
    return schema.value if isinstance(schema, MapSchema) else None


def _bound(node: Node) -> tuple[str, ...]:
    if isinstance(node, df.Loop):
        return (*node.outs, *(name for name, _ in node.vars))
    return binds_of(node)


def _other_args(node: Node) -> tuple[Arg, ...]:
    """The arguments in which expressions may stand, of nodes that are no calls."""
    if isinstance(node, df.KeepTrue):
        return (node.condition,)
    if isinstance(node, df.DepotAppend):
        return (node.value,)
    if isinstance(node, df.Cond):
        return tuple(condition for condition, _ in node.cases)
    if isinstance(node, df.Loop):
        return tuple(arg for _, arg in node.vars)
    kinds = (df.ContinueLoop, df.EmitLoop, df.InvokeQuery, df.Materialize, df.Partition)
    return node.args if isinstance(node, kinds) else ()
