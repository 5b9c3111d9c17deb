"""What notebooks show: small tables as HTML, whose names and values are escaped, and bounded in rows and characters."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, Final

from tidemill.values.data import with_utf8
from tidemill.values.errors import TidemillError
from tidemill.values.texts import shortened

ROWS_MAX: Final = 20
COLUMNS_MAX: Final = 20
CELL_MAX: Final = 200
"""Characters of a cell."""

BITS_MAX: Final = 10_000
"""Of an int that is written out."""

PICTURE_MAX: Final = 200_000
"""Characters of a picture: a larger one is not shown."""


class _Brief(reprlib.Repr):
    """Python refuses to write a long int, and would take long for it."""

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return super().repr_int(x, level) if bits <= BITS_MAX else f"<int of {bits:,} bits>"


_BRIEF: Final = _Brief()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother, _BRIEF.maxlong = 4, CELL_MAX, CELL_MAX, 60


class ShownInNotebooks:
    """What has facts to tell: a notebook shows them as a table, and why there are none where they cannot be read."""

    def _facts(self) -> Mapping[str, Any]:
        """Names and values, in order; raises what a look at the store raises."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The facts as HTML."""
        try:
            found = self._facts()
        except TidemillError as error:
            found = {"cannot be read": str(error)}
        return table(type(self).__name__, (), found.items())


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], rest: int = 0) -> str:
    """A table of the first rows; `rest` counts those that are not among them."""
    shown = [list(row[:COLUMNS_MAX]) for row in islice(rows, ROWS_MAX + 1)]
    is_cut, shown = len(shown) > ROWS_MAX, shown[:ROWS_MAX]
    head = "".join(f"<th>{text(column)}</th>" for column in columns[:COLUMNS_MAX])
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in shown)
    more = f"and {rest:,} more rows" if rest else "and more" if is_cut else ""
    parts = [
        f"<strong>{text(title)}</strong>",
        f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>",
        f"<em>{more}</em>" if more else "",
    ]
    return f"<div>{''.join(parts)}</div>"


def text(value: Any) -> str:
    """A value as HTML shows it: escaped, and its first characters only."""
    plain = with_utf8(value[: CELL_MAX + 1] if isinstance(value, str) else _BRIEF.repr(value))
    return escape(shortened(plain, CELL_MAX), quote=True)


def picture(svg: str) -> str:
    """An SVG that `drawing` made, which escapes its texts; a large one is not shown."""
    if len(svg) > PICTURE_MAX:
        return f"<div><em>The picture has {len(svg):,} characters and is not shown.</em></div>"
    return f'<div style="overflow:auto">{svg}</div>'
