"""What changed from one value to the next, as proxies of a PState tell it; each diff says how to make the new value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill.values.data import encode_canonical
from tidemill.values.json import json_key


@dataclass(frozen=True)
class Diff:
    """A change of a value. `name` is how the gateway calls it."""

    name: ClassVar[str] = ""

    def apply(self, old: Any) -> Any:
        """The new value; `old` is left as it is."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """`{"kind": name, …}` with the fields of the diff; keys of maps as JSON names them in the maps themselves."""
        return {"kind": self.name, **{key: _json(value) for key, value in vars(self).items()}}


@dataclass(frozen=True)
class NewValueDiff(Diff):
    """The value is another one."""

    name: ClassVar[str] = "newValue"
    value: Any

    def apply(self, old: Any) -> Any:
        return self.value


@dataclass(frozen=True)
class ResyncDiff(NewValueDiff):
    """The value as it is, whatever it was: the first one, or after changes that could not be told one by one."""

    name: ClassVar[str] = "resync"


@dataclass(frozen=True)
class KeysDiff(Diff):
    """Of a map: the values of these keys changed or were added. An added one has a `NewValueDiff`."""

    name: ClassVar[str] = "keys"
    diffs: tuple[tuple[Any, Diff], ...]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.name, "diffs": [[json_key(key), diff.to_json()] for key, diff in self.diffs]}

    def apply(self, old: Any) -> Any:
        return {**old, **{key: diff.apply(old.get(key)) for key, diff in self.diffs}}


@dataclass(frozen=True)
class KeyDiff(Diff):
    """Of a map: the value of this key changed or was added."""

    name: ClassVar[str] = "key"
    key: Any
    diff: Diff

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.name, "key": json_key(self.key), "diff": self.diff.to_json()}

    def apply(self, old: Any) -> Any:
        return {**old, self.key: self.diff.apply(old.get(self.key))}


@dataclass(frozen=True)
class KeyRemoveDiff(Diff):
    """Of a map: this key is gone."""

    name: ClassVar[str] = "keyRemove"
    key: Any

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.name, "key": json_key(self.key)}

    def apply(self, old: Any) -> Any:
        gone = _token(self.key)
        return {key: value for key, value in old.items() if _token(key) != gone}


@dataclass(frozen=True)
class SetAddDiff(Diff):
    """Of a set: these elements are new."""

    name: ClassVar[str] = "setAdd"
    values: tuple[Any, ...]

    def apply(self, old: Any) -> Any:
        return set(old) | set(self.values)


@dataclass(frozen=True)
class SetRemoveDiff(Diff):
    """Of a set: these elements are gone."""

    name: ClassVar[str] = "setRemove"
    values: tuple[Any, ...]

    def apply(self, old: Any) -> Any:
        gone = set(map(_token, self.values))
        return {value for value in old if _token(value) not in gone}


@dataclass(frozen=True)
class AppendDiff(Diff):
    """Of a list: these elements follow its end."""

    name: ClassVar[str] = "append"
    values: tuple[Any, ...]

    def apply(self, old: Any) -> Any:
        return [*old, *self.values]


@dataclass(frozen=True)
class SequenceInsertDiff(Diff):
    """Of a list: these elements stand before what was at `index`."""

    name: ClassVar[str] = "sequenceInsert"
    index: int
    values: tuple[Any, ...]

    def apply(self, old: Any) -> Any:
        return [*old[: self.index], *self.values, *old[self.index :]]


@dataclass(frozen=True)
class SequenceIndexRemoveDiff(Diff):
    """Of a list: `count` elements from `index` on are gone."""

    name: ClassVar[str] = "sequenceIndexRemove"
    index: int
    count: int

    def apply(self, old: Any) -> Any:
        return [*old[: self.index], *old[self.index + self.count :]]


@dataclass(frozen=True)
class SequenceIndexChangesDiff(Diff):
    """Of a list: the elements at these indices changed."""

    name: ClassVar[str] = "sequenceIndexChanges"
    diffs: tuple[tuple[int, Diff], ...]

    def apply(self, old: Any) -> Any:
        changed = dict(self.diffs)
        return [changed[i].apply(value) if i in changed else value for i, value in enumerate(old)]


@dataclass(frozen=True)
class MultiDiff(Diff):
    """Several, one after the other."""

    name: ClassVar[str] = "multi"
    diffs: tuple[Diff, ...]

    def apply(self, old: Any) -> Any:
        for diff in self.diffs:
            old = diff.apply(old)
        return old


@dataclass(frozen=True)
class EndDiff(Diff):
    """No more diffs come; the value stays as it was."""

    def apply(self, old: Any) -> Any:
        return old


@dataclass(frozen=True)
class DestroyedDiff(EndDiff):
    """The proxy was closed."""

    name: ClassVar[str] = "destroyed"


@dataclass(frozen=True)
class UngracefulTerminationDiff(EndDiff):
    """The proxy ended by itself, for this reason."""

    name: ClassVar[str] = "ungracefulTermination"
    reason: str


def diff_of(old: Any, new: Any) -> Diff | None:
    """The smallest diff of those here that makes `new` of `old`; None if they are the same value."""
    if encode_canonical(old) == encode_canonical(new):
        return None
    for kind, differ in _DIFFERS.items():
        if isinstance(old, kind) and isinstance(new, kind):
            found = [diff for diff in differ(old, new) if diff is not None]
            return found[0] if len(found) == 1 else MultiDiff(tuple(found))
    return NewValueDiff(new)


def _of_maps(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterable[Diff | None]:
    kept = {_token(key): key for key in old}
    removed = kept.keys() - set(map(_token, new))
    yield from (KeyRemoveDiff(kept[token]) for token in kept if token in removed)
    changed = []
    for key, value in new.items():
        diff = diff_of(old[kept[_token(key)]], value) if _token(key) in kept else NewValueDiff(value)
        if diff is not None:
            changed.append((kept.get(_token(key), key), diff))
    if len(changed) == 1:
        yield KeyDiff(*changed[0])
    elif changed:
        yield KeysDiff(tuple(changed))


def _of_sets(old: set[Any], new: set[Any]) -> Iterable[Diff | None]:
    before, after = ({_token(value): value for value in values} for values in (old, new))
    removed = tuple(before[token] for token in before if token not in after)
    added = tuple(after[token] for token in after if token not in before)
    yield SetRemoveDiff(removed) if removed else None
    yield SetAddDiff(added) if added else None


def _of_lists(old: list[Any], new: list[Any]) -> Iterable[Diff | None]:
    before, after = list(map(_token, old)), list(map(_token, new))
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    tail = next((i for i in range(shorter - head) if before[-1 - i] != after[-1 - i]), shorter - head)
    if head + tail >= len(before):
        added = tuple(new[head : len(new) - tail])
        yield AppendDiff(added) if head == len(before) else SequenceInsertDiff(head, added)
    elif head + tail >= len(after):
        yield SequenceIndexRemoveDiff(head, len(before) - len(after))
    elif len(before) == len(after):
        pairs = ((i, diff_of(old[i], new[i])) for i in range(head, len(old) - tail))
        yield SequenceIndexChangesDiff(tuple((i, diff) for i, diff in pairs if diff is not None))
    else:
        yield NewValueDiff(new)


_DIFFERS: Mapping[type | tuple[type, ...], Callable[[Any, Any], Iterable[Diff | None]]] = {
    dict: _of_maps,
    (set, frozenset): _of_sets,
    (list, tuple): _of_lists,
}


def _token(value: Any) -> Hashable:
    """What is equal for equal values: True and 1 are two, a NaN is one."""
    return encode_canonical(value)


def _json(value: Any) -> Any:
    if isinstance(value, Diff):
        return value.to_json()
    if isinstance(value, tuple):
        return [_json(inner) for inner in value]
    return value
