"""Writes the names of task graphs into their reference, from signatures and docstrings.

`python scripts/generate_graphs.py` writes; with `--check` it only says that the page is not up to date, and exits 1.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from generated_page import ROOT, write_or_check

import tidemill
from tidemill import testing
from tidemill.graphs.frames.frame import GraphFrame, Grouped

PAGE = ROOT / "docs/reference/graphs.md"
BEGIN = "## Every name"
HEAD = f"""{BEGIN}

From here on this page is made by `scripts/generate_graphs.py`, from signatures and docstrings. All names but those of
the last section are in `tidemill`."""
KINDS = {
    "Graphs": ("TaskGraph",),
    "Frames": ("GraphFrame", "Grouped"),
    "Datasets": ("Dataset", "KVDataset", "RangeDataset", "WindowedDataset"),
    "Partitions": ("RangePartition", "SplitPartition"),
    "Executors to derive from": ("Executor", "StatelessExecutor"),
}
KIND_NAMES = {name for listed in KINDS.values() for name in listed}
ELSEWHERE: dict[str, Any] = {
    "GraphFrame": GraphFrame, "Grouped": Grouped, "check_confluence": testing.check_confluence,
    "NotConfluent": testing.NotConfluent,
}  # fmt: skip


def page(text: str) -> str:
    """The page with the part that is made as it should be."""
    written = text.partition(BEGIN)[0].rstrip()
    lines = [written, "", HEAD]
    for title, listed in sections().items():
        lines += ["", f"### {title}"]
        for name in listed:
            lines += ["", *_entry(name)]
    return "\n".join(lines) + "\n"


def sections() -> dict[str, tuple[str, ...]]:
    """The names by kind; those of no kind of their own are executors of the library."""
    library = tuple(sorted(name for name in graph_names() if name not in KIND_NAMES))
    return {**KINDS, "Executors of the library": library, "In tidemill.testing": ("check_confluence", "NotConfluent")}


def graph_names() -> list[str]:
    """What `tidemill` offers of task graphs."""
    found = ((name, getattr(tidemill, name)) for name in tidemill.__all__)
    return [name for name, value in found if getattr(value, "__module__", "").startswith("tidemill.graphs")]


def _entry(name: str) -> Iterator[str]:
    value = ELSEWHERE[name] if name in ELSEWHERE else getattr(tidemill, name)
    yield f"**`{name}{_signature(value)}`**"
    yield ""
    own = _text(vars(value).get("__init__")) if inspect.isclass(value) else ""
    yield " ".join(filter(None, [_text(value), own]))
    members = list(_members(value)) if inspect.isclass(value) else []
    if members:
        yield ""
        yield from members


def _members(value: type) -> Iterator[str]:
    bases = [base for base in value.__mro__ if base.__module__.startswith("tidemill.graphs")]
    for base in reversed(bases):
        if base is not value and base.__name__ in KIND_NAMES:
            continue  # it has an entry of its own
        for name, member in vars(base).items():
            own = inspect.unwrap(getattr(member, "__func__", member))
            is_callable = inspect.isfunction(own)
            if not name.startswith("_") and (is_callable or _is_property(member)):
                texts = (_text(vars(each).get(name)) for each in bases)
                text = next(filter(None, texts), "")
                yield f"- `{name}{_signature(own) if is_callable else ''}`: {text}"


def _is_property(member: Any) -> bool:
    return isinstance(member, property) or type(member).__name__ == "cached_property"


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except ValueError:
        return ""
    given = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    shown, kinds = [_parameter(each) for each in given], [each.kind for each in given]
    has_rest = inspect.Parameter.VAR_POSITIONAL in kinds
    if inspect.Parameter.KEYWORD_ONLY in kinds and not has_rest:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return f"({', '.join(shown)})"


def _parameter(each: inspect.Parameter) -> str:
    sign = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    if each.default is each.empty:
        return f"{sign}{each.name}"
    default = each.default.__name__ if inspect.isclass(each.default) else repr(each.default)
    return f"{each.name}={default}"


def _text(value: Any) -> str:
    """A docstring on one line, where a table or a list of Markdown cannot take it otherwise."""
    text = "" if value is None else inspect.cleandoc(value.__doc__ or "")  # None's type has a docstring from 3.13 on
    text = re.sub(r"^Raises:$", "Raises", text, flags=re.MULTILINE)
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(PAGE.read_text(encoding="utf-8"))))
