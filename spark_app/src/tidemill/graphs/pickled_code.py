"""Pickles that say of the code in them which Python made it. Code by value (lambdas, and what stands in the program
itself) is bytecode, and each minor version of Python has its own: to run another one's ends the process.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import cloudpickle

from tidemill.values.errors import BadInput

PYTHON = "{}.{}".format(*sys.version_info)


def code_of(python: str, make: Callable[..., types.CodeType], arguments: tuple[Any, ...]) -> types.CodeType:
    """The code that a pickle holds.

    Raises:
        BadInput: another Python made it.
    """
    if python != PYTHON:
        text = f"Code of this graph was saved by Python {python}, and this is Python {PYTHON}, which cannot run it."
        hint = "Start the program that defines the graph again. Where that says this, too, its state has the code"
        raise BadInput(f"{text} {hint}: go on with Python {python}.")
    return make(*arguments)


def _marked(code: types.CodeType) -> tuple[Callable[..., types.CodeType], tuple[Any, ...]]:
    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return code_of, (PYTHON, make, arguments)


class CodePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles as cloudpickle does; where it meets code, it puts the version of this Python beside it."""

    dispatch_table = ChainMap({types.CodeType: _marked}, cloudpickle.Pickler.dispatch_table)

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)


def dump_code(value: Any) -> bytes:
    """Anything as bytes that `pickle.loads` reads; it raises BadInput where they hold code of another Python."""
    buffer = io.BytesIO()
    CodePickler(buffer).dump(value)
    return buffer.getvalue()
