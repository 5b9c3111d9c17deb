"""Generates the Python source of a segment that runs row by row: one function a meeting place, everything else inline.

    def make(R):                        # R gives what the code calls: paths, functions, buffers
        def f12(task, a, b): …          # where ways meet, and the heads of loops
        def main(rows):
            for task, v0, v1 in rows: …
        return main

Each binding gets a Python name of its own, so that rows that were copied never see each other's variables. A loop is a
list that grows while it is walked: rounds come in the order in which `continue_loop` asked for them, as by columns.
The text holds nothing of the user's but numbers of operators: values and functions come in through `R`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemill.language.dataflow import Arg, Const
from tidemill.language.operations import Op, is_scalar
from tidemill.plan import program as pg
from tidemill.plan.compile.liveness import reads_of
from tidemill.plan.nodes import binds_of

_DEPTH_MAX = 12
_INLINE: dict[tuple[str, int], str] = {
    ("IDENTITY", 1): "{0}", ("INC", 1): "{0} + 1", ("DEC", 1): "{0} - 1", ("PLUS", 2): "{0} + {1}",
    ("MINUS", 2): "{0} - {1}", ("TIMES", 2): "{0} * {1}", ("MOD", 2): "{0} % {1}", ("DIV", 2): "{0} / {1}",
    ("FLOOR_DIV", 2): "{0} // {1}",
    ("EQUAL", 2): "bool({0} == {1})", ("LESS_THAN", 2): "bool({0} < {1})", ("GREATER_THAN", 2): "bool({0} > {1})",
    ("LESS_THAN_OR_EQUAL", 2): "bool({0} <= {1})", ("GREATER_THAN_OR_EQUAL", 2): "bool({0} >= {1})",
    ("NOT_EQUAL", 2): "not bool({0} == {1})", ("IS_NULL", 1): "{0} is None", ("IS_NOT_NULL", 1): "{0} is not None",
    ("TUPLE", 2): "[{0}, {1}]", ("NOT", 1): "{0} is None or {0} is False",
}  # fmt: skip
_EQUALITY = ("EQUAL", "NOT_EQUAL")

Names = Mapping[str, str]


@dataclass
class SegmentSource:
    """The generated text; `operator_of` maps its lines to operators, `buffers` are the ends with the columns they take,
    `names` the variables of Python names and `scopes` the names that are bound where an operator runs."""

    lines: list[str] = field(default_factory=list)
    operator_of: dict[int, int] = field(default_factory=dict)
    buffers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    constants: list[object] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    scopes: dict[int, set[str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The lines as one text, ready to compile."""
        return "\n".join(self.lines) + "\n"


class SourceWriter:
    """Writes the source of one segment."""

    def __init__(self, program: pg.Program, start: int, operators: Sequence[int]) -> None:
        self.program = program
        self.start = start
        self._operators = operators
        self.source = SegmentSource()
        self._prelude: dict[str, str] = {}
        self._bodies: list[tuple[list[str], list[int]]] = []
        self._functions: set[int] = set()
        self._waiting: list[int] = []
        self._meeting = self._meeting_places()
        leaves = {op.split: op.id for op in program.operators if isinstance(op, pg.Join) and op.split is not None}
        enters = [op.id for op in program.operators if isinstance(op, pg.Assign) and op.purpose == "enter"]
        self._loops = {loop: leaves.get(loop, loop) for loop in enters}
        self._out: tuple[list[str], list[int]] = ([], [])
        self._count = 0

    def _meeting_places(self) -> set[int]:
        """Operators that are reached from several places, and heads of loops."""
        counts: dict[int, int] = {}
        inside = sorted({self.start, *self._operators})
        for number in inside:
            is_end = number != self.start and isinstance(self.program.operators[number], pg.SEGMENT_ENDS)
            for successor in () if is_end else self.program.next[number]:
                counts[successor] = counts.get(successor, 0) + 1
        heads = {op.id for op in self.program.operators if isinstance(op, pg.Assign) and op.purpose == "head"}
        return {number for number, count in counts.items() if count > 1 or number in heads}

    # --- text --------------------------------------------------------------------------------------------------------

    def write(self) -> SegmentSource:
        """The whole source."""
        live = self.program.live[self.start]
        names = {name: self._name(name) for name in live}
        self._line(2, "def main(rows):", self.start)
        self._line(3, f"for {', '.join(['task', *names.values()])}, in rows:", self.start)
        before = len(self._out[0])
        self._follow(self.start, names, 4)
        if len(self._out[0]) == before:
            self._line(4, "pass", self.start)
        main = self._out
        self._bodies.append(main)
        while self._waiting:
            self._write_function(self._waiting.pop())
        return self._assembled()

    def _assembled(self) -> SegmentSource:
        source = self.source
        source.lines.append("def make(R):")
        for name, expression in self._prelude.items():
            source.lines.append(f"    {name} = {expression}")
        for lines, operators in [*self._bodies[1:], self._bodies[0]]:
            for line, operator in zip(lines, operators, strict=True):
                source.lines.append(line)
                source.operator_of[len(source.lines)] = operator
        source.lines.append("    return main")
        return source

    def _line(self, depth: int, text: str, operator: int) -> None:
        self._out[0].append("    " * (depth - 1) + text)
        self._out[1].append(operator)

    def _name(self, variable: str) -> str:
        self._count += 1
        name = f"v{self._count}"
        self.source.names[name] = variable
        return name

    def _given(self, name: str, expression: str) -> str:
        """Something from `R`, bound to a name when the code is made."""
        self._prelude[name] = expression
        return name

    def _value(self, arg: Arg, names: Names) -> str:
        if isinstance(arg, Const):
            if arg.value is None or type(arg.value) in (int, bool):
                return f"({arg.value!r})"
            self.source.constants.append(arg.value)
            index = len(self.source.constants) - 1
            return self._given(f"c{index}", f"R.constants[{index}]")
        return names[arg.name]  # type: ignore[union-attr]

    def _values(self, args: Sequence[Arg], names: Names) -> list[str]:
        return [self._value(arg, names) for arg in args]

    # --- functions ---------------------------------------------------------------------------------------------------

    def _before(self, number: int) -> list[str]:
        """The variables that are read at an operator or behind it."""
        operator = self.program.operators[number]
        live = set(self.program.live[number]) - set(binds_of(operator))
        return sorted(live | reads_of(operator, self.program.regions))

    def _call(self, number: int, names: Names, depth: int, origin: int) -> None:
        if number not in self._functions:
            self._functions.add(number)
            self._waiting.append(number)
        queues = [names.get(f"%{loop}", "None") for loop in self._loops_around(number)]
        args = ", ".join(["task", *queues, *(names[name] for name in self._before(number))])
        self._line(depth, f"f{number}({args})", origin)

    def _loops_around(self, number: int) -> list[int]:
        """The loops whose bodies hold an operator: ids of a body lie between its head and the place behind the loop."""
        return [loop for loop, leave in self._loops.items() if loop + 1 < number < leave]

    def _write_function(self, number: int) -> None:
        self._out = ([], [])
        queues = {f"%{loop}": f"queue{loop}" for loop in self._loops_around(number)}
        names = {**queues, **{name: self._name(name) for name in self._before(number)}}
        self._line(2, f"def f{number}({', '.join(['task', *names.values()])}):", number)
        self._line(3, "pass", number)
        operator = self.program.operators[number]
        if isinstance(operator, pg.Assign) and operator.purpose == "head":
            self._write_loop(operator, names)
        else:
            self._operator(number, names, 3)
        self._bodies.append(self._out)

    def _write_loop(self, head: pg.Assign, names: Names) -> None:
        """The rounds of a loop: a list of its variables that grows while it is walked."""
        variables = [name for name in self._loop_vars(head) if name in names]
        first = ", ".join(names[name] for name in variables)
        queue = f"queue{head.loop}"
        self._line(3, f"{queue} = [({first},)]" if variables else f"{queue} = [()]", head.id)
        inner = {**names, **{name: self._name(name) for name in variables}, f"%{head.loop}": queue}
        bound = ", ".join(inner[name] for name in variables)
        self._line(3, f"for ({bound},) in {queue}:" if variables else f"for _ in {queue}:", head.id)
        self._line(4, "pass", head.id)
        self._operator(head.id, inner, 4)

    def _loop_vars(self, head: pg.Assign) -> tuple[str, ...]:
        enter = self.program.operators[head.loop]
        assert isinstance(enter, pg.Assign)
        return enter.outs

    # --- operators ---------------------------------------------------------------------------------------------------

    def _follow(self, number: int, names: Names, depth: int) -> None:
        for successor in self.program.next[number]:
            self._go(successor, names, depth, number)

    def _go(self, number: int, names: Names, depth: int, origin: int) -> None:
        """Code that brings the row to an operator."""
        is_end = isinstance(self.program.operators[number], (*pg.SEGMENT_ENDS, pg.Collect, pg.Gather))
        if not is_end and (number in self._meeting or depth > _DEPTH_MAX):
            self._call(number, names, depth, origin)
        else:
            self._operator(number, names, depth)

    def _operator(self, number: int, names: Names, depth: int) -> None:
        operator = self.program.operators[number]
        self.source.scopes.setdefault(number, set()).update(names.values())
        getattr(self, "_write_" + type(operator).__name__.lower())(operator, names, depth)

    def _write_join(self, operator: pg.Join | pg.Start, names: Names, depth: int) -> None:
        self._follow(operator.id, names, depth)

    _write_start = _write_join

    def _write_keep(self, operator: pg.Keep, names: Names, depth: int) -> None:
        value = self._value(operator.condition, names)
        self._line(depth, f"if {value} is not None and {value} is not False:", operator.id)
        self._line(depth + 1, "pass", operator.id)
        self._follow(operator.id, names, depth + 1)

    def _write_split(self, operator: pg.Split, names: Names, depth: int) -> None:
        then, otherwise = self.program.next[operator.id]
        value = self._value(operator.condition, names)
        self._line(depth, f"if {value} is not None and {value} is not False:", operator.id)
        self._line(depth + 1, "pass", operator.id)
        self._go(then, names, depth + 1, operator.id)
        self._line(depth, "else:", operator.id)
        self._line(depth + 1, "pass", operator.id)
        self._go(otherwise, names, depth + 1, operator.id)

    def _write_assign(self, operator: pg.Assign, names: Names, depth: int) -> None:
        bound = {out: self._value(arg, names) for out, arg in zip(operator.outs, operator.args, strict=True)}
        if operator.purpose != "again":
            self._follow(operator.id, {**names, **bound}, depth)
            return
        queue = names.get(f"%{operator.loop}", "None")
        if queue != "None":
            head = self.program.operators[operator.loop + 1]
            assert isinstance(head, pg.Assign)
            wanted = [name for name in self._loop_vars(head) if name in self._before(head.id)]
            row = "".join(f"{bound[name]}, " for name in wanted)
            self._line(depth, f"if {queue} is not None:", operator.id)
            self._line(depth + 1, f"{queue}.append(({row}))", operator.id)
            self._line(depth, "else:", operator.id)
            depth += 1
        self._follow(operator.id, {**names, **bound}, depth)

    def _write_apply(self, operator: pg.Apply, names: Names, depth: int) -> None:
        call = operator.function.call
        args = self._values(operator.args, names)
        outs = {out: self._name(out) for out in operator.outs}
        after = {**names, **outs}
        targets = ", ".join(outs.values())
        number = operator.id
        if operator.function.kind == "operation" or (isinstance(call, Op) and call.emits == "many"):
            function = self._given(f"many{number}", f"R.many({number})")
            target = f"({targets},)" if outs else "_"
            self._line(depth, f"for {target} in {function}({', '.join(args)}):", number)
            self._line(depth + 1, "pass", number)
            self._follow(number, after, depth + 1)
            return
        self._line(depth, self._single(operator, args, targets), number)
        self._follow(number, after, depth)

    def _single(self, operator: pg.Apply, args: list[str], targets: str) -> str:
        """The line of a call that emits exactly once."""
        call = operator.function.call
        left = f"{targets} = " if targets else ""
        if isinstance(call, Op):
            inline = _INLINE.get((call.name, len(args)))
            if call.name in _EQUALITY and not any(
                isinstance(arg, Const) and is_scalar(arg.value) for arg in operator.args
            ):
                inline = None  # two collections are not compared as Python does
            if call.needs_context:
                context = self._given("context", "R.context")
                return f"{left}{context}({call.name!r}, task, {operator.id})"
            # Python warns of `is` beside a literal.
            is_quiet = inline is not None and (" is " not in inline or not isinstance(operator.args[0], Const))
            if inline is not None and is_quiet and len(operator.outs) == 1:
                return left + inline.format(*args)
        is_spread = len(operator.outs) > 1 or (isinstance(call, Op) and call.emits == "expand" and operator.outs)
        is_vector = operator.function.kind == "vectorized"
        name = "spread" if is_spread and not is_vector else "vector" if is_vector else "call"
        function = self._given(f"{name}{operator.id}", f"R.{name}({operator.id})")
        comma = "," if targets and (is_spread and len(operator.outs) == 1) else ""
        return f"{targets}{comma}{' = ' if targets else ''}{function}({', '.join(args)})"

    def _write_select(self, operator: pg.Select, names: Names, depth: int) -> None:
        path = self._given(f"select{operator.id}", f"R.select({operator.id})")
        roots = self._given(f"roots{operator.id}", f"R.roots({operator.pstate!r})")
        args = "".join(f"{self._value(arg, names)}, " for arg in self._path_args(operator.id))
        out = self._name(operator.outs[0]) if operator.outs else "_"
        partition = self._partition(operator, names)
        self._line(depth, f"for {out} in {path}({roots}[{partition}], ({args})):", operator.id)
        self._line(depth + 1, "pass", operator.id)
        self._follow(operator.id, {**names, **dict.fromkeys(operator.outs, out)}, depth + 1)

    def _partition(self, operator: pg.Select | pg.Append, names: Names) -> str:
        return "task" if operator.partition is None else self._value(operator.partition, names)

    def _write_invoke(self, operator: pg.Invoke, names: Names, depth: int) -> None:
        call = self._given(f"query{operator.id}", f"R.query({operator.id})")
        args = "".join(f"{self._value(arg, names)}, " for arg in operator.args)
        out = self._name(operator.outs[0]) if operator.outs else "_"
        self._line(depth, f"{out} = {call}(task, ({args}))", operator.id)
        self._follow(operator.id, {**names, **dict.fromkeys(operator.outs, out)}, depth)

    def _write_answer(self, operator: pg.Answer, names: Names, depth: int) -> None:
        answer = self._given("answer", "R.answer")
        self._line(depth, f"{answer}({self._value(operator.value, names)})", operator.id)

    def _path_args(self, number: int) -> Sequence[Arg]:
        return self.path_arguments[number]

    path_arguments: Mapping[int, Sequence[Arg]] = {}
    fold_arguments: Mapping[int, Sequence[Arg]] = {}

    def _write_transform(self, operator: pg.Transform, names: Names, depth: int) -> None:
        path = self._given(f"transform{operator.id}", f"R.transform({operator.id})")
        roots = self._given(f"roots{operator.id}", f"R.roots({operator.pstate!r})")
        args = "".join(f"{self._value(arg, names)}, " for arg in self._path_args(operator.id))
        self._line(depth, f"{path}({roots}[task], ({args}))", operator.id)
        self._follow(operator.id, names, depth)

    def _write_clear(self, operator: pg.Clear, names: Names, depth: int) -> None:
        clear = self._given(f"clear{operator.id}", f"R.clear({operator.id})")
        self._line(depth, f"{clear}(task)", operator.id)
        self._follow(operator.id, names, depth)

    def _write_append(self, operator: pg.Append, names: Names, depth: int) -> None:
        append = self._given(f"append{operator.id}", f"R.append({operator.id})")
        self._line(
            depth, f"{append}({self._partition(operator, names)}, {self._value(operator.value, names)})", operator.id
        )
        self._follow(operator.id, names, depth)

    def _write_fold(self, operator: pg.Fold, names: Names, depth: int) -> None:
        fold = self._given(f"fold{operator.id}", f"R.fold({operator.id})")
        args = "".join(f"{self._value(arg, names)}, " for arg in self.fold_arguments[operator.id])
        self._line(depth, f"{fold}(task, ({args}))", operator.id)
        self._follow(operator.id, names, depth)

    def _write_retain(self, operator: pg.Retain, names: Names, depth: int) -> None:
        retain = self._given(f"retain{operator.id}", f"R.retain({operator.id})")
        values = "".join(f"{value}, " for value in self._values(operator.args, names))
        self._line(depth, f"{retain}(task, ({values}))", operator.id)
        self._follow(operator.id, names, depth)

    def _buffer(self, number: int, names: Names, depth: int) -> None:
        wanted = self._before(number)
        self.source.buffers[number] = tuple(wanted)
        append = self._given(f"put{number}", f"R.buffer({number})")
        row = "".join(f"{names[name]}, " for name in wanted)
        self._line(depth, f"{append}((task, {row}))", number)

    def _write_move(self, operator: pg.Move, names: Names, depth: int) -> None:
        self._buffer(operator.id, names, depth)

    def _write_enter(self, operator: pg.Enter, names: Names, depth: int) -> None:
        self._buffer(operator.id, names, depth)

    def _write_collect(self, operator: pg.Collect, names: Names, depth: int) -> None:
        self._buffer(operator.id, names, depth)

    def _write_gather(self, operator: pg.Gather, names: Names, depth: int) -> None:
        self._buffer(operator.id, names, depth)

    def _write_explode(self, operator: pg.Explode, names: Names, depth: int) -> None:
        self._buffer(operator.id, names, depth)
