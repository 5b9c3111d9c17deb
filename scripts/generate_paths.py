"""Writes the reference of paths from their builder and from the records of navigators.

`python scripts/generate_paths.py` writes; with `--check` it only says that the page is not up to date, and exits 1.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

from generated_page import ROOT, write_or_check

from tidemill.api.path import Path
from tidemill.paths import control, custom, filters, lists, maps, sets, sublists
from tidemill.paths.arguments import PATHS
from tidemill.paths.navigator import Navigator

PAGE = ROOT / "docs/reference/paths.md"
KINDS = {
    "Maps": maps, "Sets": sets, "Lists": lists, "Parts of lists": sublists, "Filters and views": filters,
    "Control, collected values and terminals": control, "Navigators of yours": custom,
}  # fmt: skip
HEAD = """# Paths

Made by `scripts/generate_paths.py`. A path is navigators, one after the other: `Path.key("ann").all()`, in JSON
`["ann", ["all"]]`. Each navigator leads from a value to zero or more values. A select gives the values at the end. A
transform ends in a terminal (`term`, `term_val`, `term_void`), which says what stands there from now on; where a path
leads to nothing, a transform changes nothing. In JSON, names may be in camel or in snake case; `{…}` holds options and
may be left out, as may what is in parentheses."""


def page() -> str:
    """The page as it should be."""
    lines = [HEAD]
    for title, kind in KINDS.items():
        lines += ["", f"## {title}", "", "| in Python | in JSON | what it leads to |", "| --- | --- | --- |"]
        lines += [row(navigator) for navigator in kind.NAVIGATORS]
    return "\n".join(lines) + "\n"


def row(navigator: Navigator) -> str:
    """A navigator's line of the table."""
    function = vars(Path)[navigator.name].function
    parameters = list(inspect.signature(function).parameters.values())[1:]
    in_python = f"{navigator.name}({', '.join(map(_in_python, parameters))})"
    camel = re.sub("_([a-z])", lambda found: found[1].upper(), navigator.name)
    in_json = ", ".join([f'"{camel}"', *_in_json(navigator, parameters)])
    in_json = "none" if navigator.is_code else f"`[{in_json}]`"
    text = " ".join((inspect.getdoc(function) or "").split())
    return f"| `{in_python}` | {in_json} | {text} |"


def _in_python(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    is_named = parameter.kind is parameter.KEYWORD_ONLY
    return f"{parameter.name}=" if is_named or parameter.default is None else parameter.name


def _in_json(navigator: Navigator, parameters: list[inspect.Parameter]) -> Iterator[str]:
    takes = navigator.arguments
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    names = ["max_amt" if name == "options" else name.rstrip("_") for name in names]
    for index, kind in enumerate(takes.kinds):
        form = "#__fOps.…" if kind == "function" else f"[{names[index]}…]" if kind in PATHS else names[index]
        form = f'"{form}"' if kind == "function" else form
        yield f"({form})" if index >= len(takes.kinds) - takes.optional else form
    if takes.more:
        several = next(p.name for p in parameters if p.kind is p.VAR_POSITIONAL)
        name = re.sub("(?<=x)es$|s$", "", several)
        forms = [
            "[condition…]" if kind == "condition" else f"[{name}…]" if kind in PATHS else name for kind in takes.more
        ]
        yield ", ".join([*forms, "…"])
    if navigator.options:
        yield "{" + ", ".join(sorted(navigator.options)) + "}"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
