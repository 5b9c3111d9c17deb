"""What a case of `sub_source` takes, as the user writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.api.arguments import Constant, to_plain_function
from tidemill.language.dataflow import Location
from tidemill.language.dispatch import EVERY, OfClass, OfFunction, OfValue, Taker, class_of
from tidemill.language.operations import Op
from tidemill.values.data import check_data
from tidemill.values.errors import Fault, RecordRefused


def to_taker(wanted: Any, at: Location, faults: list[Fault]) -> Taker:
    """What a case takes: a class, a function of the value, or a constant; what is wrong is added to `faults`."""
    if wanted is None or isinstance(wanted, type):
        return OfClass(type(None) if wanted is None else class_of(wanted))
    if isinstance(wanted, Constant):
        return OfValue(wanted.value)
    advice = "Give it a class, a constant, or a function of the value; other conditions are for cond."
    if type(wanted).__module__.startswith("tidemill.api."):
        faults.append(Fault(str(at), f"A case of sub_source takes no {type(wanted).__name__}.", advice))
    elif isinstance(wanted, Op) or _is_function(wanted):
        recorded = to_plain_function(wanted, 1, at, faults)
        return OfFunction(f"Ops.{wanted.name}" if isinstance(wanted, Op) else recorded.name, recorded.call)
    elif isinstance(wanted, str) and wanted.startswith(("*", "$$")):
        text = f"A case of sub_source takes no variable; '{wanted}' looks like one."
        faults.append(Fault(str(at), text, f'Write Constant("{wanted}") for the text.'))
    else:
        try:
            check_data(wanted)
        except RecordRefused as error:
            faults.append(Fault(str(at), f"A case of sub_source takes no {wanted!r}: {error}", advice))
    return OfValue(wanted)


def _is_function(value: Any) -> bool:
    """Whether a function was given, not a generic type such as `list[int]`."""
    return callable(value) and not hasattr(value, "__origin__")


def dispatch_faults(takers: Sequence[Taker], at: Location) -> list[Fault]:
    """Cases that can never run, because one before them takes what they would."""
    found = []
    for number, taker in enumerate(takers):
        before = takers[:number]
        same = OfClass(class_of(type(taker.value))) if isinstance(taker, OfValue) else EVERY
        if EVERY in before or same in before or (not isinstance(taker, OfFunction) and taker in before):
            text = f"The case for {taker} of sub_source can never run: one before it takes all that it would."
            found.append(Fault(str(at), text, "Remove it, or put it first."))
    return found
