"""The optional parts of the package: which of them an import needs that is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

from tidemill.values.errors import BadInput

Extra = Literal["spark", "gateway", "kubernetes", "sql", "otlp"]

PACKAGES: dict[Extra, frozenset[str]] = {
    "spark": frozenset({"pyspark", "py4j"}),
    "gateway": frozenset(
        {"fastapi", "fastapi_offline", "starlette", "uvicorn", "httptools", "uvloop", "prometheus_client"}
    ),
    "kubernetes": frozenset({"lightkube", "prometheus_client", "yaml"}),
    "sql": frozenset({"duckdb"}),
    "otlp": frozenset({"opentelemetry"}),
}
"""The packages that each extra of `pyproject.toml` brings, as Python imports them."""


@contextmanager
def needing(extra: Extra) -> Iterator[None]:
    """Around the imports of an optional part.

    Raises:
        BadInput: a package of that part is not installed; the text says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES[extra]:
            raise
        text = (
            f"This needs the package {error.name}, which is not installed. Install it: pip install 'tidemill[{extra}]'"
        )
        raise BadInput(text, extra=extra) from error


def demand(extra: Extra, package: str) -> None:
    """Before anything is done that would be left behind without this package of an optional part.

    Raises:
        BadInput: it is not installed; the text says how to install it.
    """
    with needing(extra):
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
