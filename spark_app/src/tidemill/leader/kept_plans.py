"""The plans of topologies in the store, so that who looks at a module sees them without its code.

    <topology>/plans/<epoch>.json    the plan with which the leader of this epoch began, if it was a new one

A plan is kept as the boxes and arrows of its picture. Nothing depends on it: it is written once by a leader, beside its
work, and not in backups, since the first leader after a restore writes it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidemill.drawing.layout import Arrow, Box
from tidemill.plan.picture import Sketch, drawn, title_of
from tidemill.plan.program import Program
from tidemill.store.json_codec import SUFFIX, JsonCodec
from tidemill.store.objects import AlreadyExists, NotFound, ObjectStore
from tidemill.values.errors import CorruptState, NewerFormat
from tidemill.values.numbers import Epoch
from tidemill.values.stored import Stored

PLAN_BYTES_MAX: Final = 1_000_000
"""Larger ones are not kept: a page could not show them."""

PLANS_KEPT: Final = 2
"""The newest ones of a topology: whoever listed the older one may still read it."""


@dataclass(frozen=True)
class KeptBox(Box, Stored):
    """A box with all its fields."""


@dataclass(frozen=True)
class KeptArrow(Arrow, Stored):
    """An arrow with all its fields."""


@dataclass(frozen=True)
class KeptPlan:
    """The picture of one program, before it is laid out; `plan` tells it from others, as in the metrics of commits."""

    plan: int
    title: str
    boxes: tuple[KeptBox, ...]
    arrows: tuple[KeptArrow, ...]


_JSON: Final[JsonCodec[KeptPlan]] = JsonCodec(KeptPlan)


def keep_plan(store: ObjectStore, prefix: str, epoch: Epoch, program: Program) -> None:
    """Keep the plan of a leader, unless it is the one that is kept already; older ones go.

    Raises:
        StoreUnavailable, OutcomeUnknown: the next leader keeps it.
    """
    keys, (boxes, arrows) = _keys(store, prefix), Sketch(program).parts()
    made = KeptPlan(
        program.shape,
        title_of(program),
        tuple(KeptBox(**vars(box)) for box in boxes),
        tuple(KeptArrow(**vars(arrow)) for arrow in arrows),
    )
    key = f"{prefix}/plans/{epoch:020d}{SUFFIX}"
    content = _JSON.encode(made, key)
    if len(content) > PLAN_BYTES_MAX or (keys and _plan_at(store, keys[-1]) == made):
        return
    with suppress(AlreadyExists):
        store.create(key, content)
    for old in keys[: 1 - PLANS_KEPT]:
        store.delete(old)


def kept_picture(store: ObjectStore, prefix: str) -> str | None:
    """The newest plan that a leader kept, as SVG; None where there is none that can be read.

    Raises:
        StoreUnavailable: ask again.
    """
    for key in reversed(_keys(store, prefix)):
        found = _plan_at(store, key)
        if found is not None:
            return drawn(found.boxes, found.arrows, found.title, found.plan)
    return None


def _keys(store: ObjectStore, prefix: str) -> Sequence[str]:
    return sorted(store.list(f"{prefix}/plans"))


def _plan_at(store: ObjectStore, key: str) -> KeptPlan | None:
    """One kept plan; None where it is gone, damaged or of a newer Tidemill: nothing depends on it."""
    with suppress(NotFound, CorruptState, NewerFormat):
        found = _JSON.decode(store.get(key), key)
        return found if _has_its_boxes(found) else None
    return None


def _has_its_boxes(plan: KeptPlan) -> bool:
    """Whether it can be laid out: each arrow leads from box to box."""
    known = {box.id for box in plan.boxes}
    return len(known) == len(plan.boxes) and all({arrow.source, arrow.target} <= known for arrow in plan.arrows)
