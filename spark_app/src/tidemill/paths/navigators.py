"""Every navigator by the name that `api.path.Path` records; each is declared in the file of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemill.paths import control, custom, filters, lists, maps, sets, sublists
from tidemill.paths.navigator import Navigator

NAVIGATORS: Final[Mapping[str, Navigator]] = {
    navigator.name: navigator
    for kind in (maps, sets, lists, sublists, filters, control, custom)
    for navigator in kind.NAVIGATORS
}  # fmt: skip
