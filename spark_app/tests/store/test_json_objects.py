"""Objects of the store that are JSON: read as they were written, or refused by name, whatever became of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.definition import stored_json
from tidemill.definition.definition import StoredDefinition, StoredDepot, StoredPState, StoredSource, StoredTopology
from tidemill.definition.ownership import Owner
from tidemill.definition.stored import Retirement
from tidemill.depot.mark import SegmentMark
from tidemill.journal import entries, options_log
from tidemill.journal.definition_log import DefinitionLog
from tidemill.journal.entries import Attempt, Committed, Entry, Failure, PendingCompaction, SourceProgress
from tidemill.journal.options_log import Change, OptionsEntry, OptionsLog
from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.schema import Leaf, MapSchema
from tidemill.leader import backup_folder, deletions, kept_plans
from tidemill.leader.backup_folder import Backup, BackupFolder, SavedTopology
from tidemill.leader.deletions import DeletionDecision
from tidemill.leader.kept_plans import KeptArrow, KeptBox, KeptPlan
from tidemill.store import incarnations, lease, standbys
from tidemill.store.incarnations import Incarnation, Switch
from tidemill.store.json_codec import JsonCodec
from tidemill.store.lease import Heartbeat, LeaderNotes
from tidemill.store.standbys import Standby
from tidemill.testing.memory_store import MemoryStore
from tidemill.values.errors import CorruptState, NewerFormat
from tidemill.values.offsets import OffsetRanges
from tidemill.values.stored import Stored

KEY = "M/objects/00000000000000000001.json"
LEVELS = tuple(
    Level("delta", i, i, (Part(f"d{i}", TaskSet(2, 1), {"p/0": 3}, 9, {"p/0": 4}, "ab"),), i == 1) for i in (1, 2, 3)
)
PSTATE = StoredPState("$$p", "p1", MapSchema("str", Leaf("int")), initial_value={(1, b"x"): None})
DEPOT = StoredDepot("*d", "d1", "hash_by", fields=("a",), schema=Leaf("int"))
TOPOLOGY = StoredTopology("t", "t1", {"$$p": PSTATE}, (StoredSource("*d", "*d", since=2),))
ENTRY = Entry(
    "commit", "n", 3, 2, 5, {"*d": SourceProgress("d-1", (5, 6), (0, 1), SegmentMark(4, "m"))}, {"*t": 9},
    Attempt(8, 2, {"*d": OffsetRanges((5, 6), (7, 6))}, {"*t": 10}, {"other": 4}, (), {"*d": SegmentMark(5, "m")}),
    (Committed(7, 1, 20, 3, {"process_ms": 1.5}),), 11, Snapshot(LEVELS), Snapshot((*LEVELS[:2], LEVELS[0])),
    (PendingCompaction(8, 1, 5, 3),), (), 12, 2, Failure(8, 1, "process", "UserCodeFailed", "no", 4), "me", 1,
)  # fmt: skip
DEFINITION = StoredDefinition(
    "M", 4, 2, {"*d": DEPOT}, {"t": TOPOLOGY}, 3, "n", 5, False, (("module", "", "depot.max.fetch", 7),), 2,
    (Retirement(2, DEPOT), Retirement(2, PSTATE, "t1"), Retirement(2, StoredSource("*e", "*e"), "t1"),
     Retirement(3, TOPOLOGY)), ("M/depots/e-1",), Owner("c", "n", "m", "u"),
)  # fmt: skip
OPTIONS = OptionsEntry(
    "n", 3, Change("set", "module", "", "depot.max.fetch", 7), (("module", "", "depot.max.fetch", 7),), {"t": 2},
    (("module", "", "depot.max.fetch", "Module m"),),
)  # fmt: skip
BACKUP = Backup(
    "b", "s", "u", 5, (SavedTopology("M", "t", "M/t", 2, 3, 4, 5),), ("M",), {"M/t/log": 1}, {"k": (3, "c")}
)
PLAN = KeptPlan(
    7, "t", (KeptBox("1", "each", "*a", "each at m:1", "moved", "rows"),), (KeptArrow("1", "2", "state", "l", "1>2"),)
)  # fmt: skip
STORED: dict[str, tuple[JsonCodec[Any], Any]] = {
    "entry": (entries._JSON, ENTRY),
    "definition": (stored_json.JSON, DEFINITION),
    "options": (options_log.JSON, OPTIONS),
    "decision": (deletions._JSON, DeletionDecision("n", "done", 5)),
    "backup": (backup_folder._JSON, BACKUP),
    "heartbeat": (lease._JSON, Heartbeat("n", "me", True, LeaderNotes("Spark", "http://x", ("you",)))),
    "standby": (standbys._JSON, Standby("me")),
    "plan": (kept_plans._JSON, PLAN),
    "switch": (incarnations._JSON, Switch("f", "b", 5)),
}
OTHER = Switch("g", "b", 5)
DEEP = "[" * 100_000
WRONG: list[Any] = [None, True, -1, 1.5, 2**63, "x", [], [[]], {}, {"x": 1}]
MAPS = {
    "depots", "topologies", "pstates", "progress", "ticks", "ranges", "reads", "metrics", "rows", "bounds", "paused",
    "logs", "objects", "reached",
}  # fmt: skip
"""Objects whose names are no fields."""


@pytest.fixture(params=STORED)
def stored(request: pytest.FixtureRequest) -> tuple[JsonCodec[Any], Any]:
    return STORED[request.param]


def objects(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each object and list inside some data, and under which name it stands."""
    if isinstance(data, (dict, list)):
        yield name, data
        for key, value in list(data.items() if isinstance(data, dict) else enumerate(data)):
            yield from objects(value, key if isinstance(key, str) else name)


def changed(data: Any) -> Iterator[Any]:
    """This data with one value of another kind, or one too many, at each place in turn; it is the same object."""
    for _, held in list(objects(data)):
        for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
            for other in WRONG:
                held[key] = other
                yield data
            held[key] = value
        if isinstance(held, list):
            held.append(None)
        else:
            held["unknown"] = 1
        yield data
        held.pop(-1 if isinstance(held, list) else "unknown")


def test_a_value_is_equal_and_has_the_same_bytes_when_it_went_through_the_store(
    stored: tuple[JsonCodec[Any], Any],
) -> None:
    codec, value = stored
    content = codec.encode(value, KEY)
    assert codec.decode(content, KEY) == value
    assert codec.encode(codec.decode(content, KEY), KEY) == content
    assert list(json.loads(content))[:2] == ["key", "format"]


def test_an_object_is_refused_by_name_or_says_the_same_when_one_value_in_it_is_another(
    stored: tuple[JsonCodec[Any], Any],
) -> None:
    codec, value = stored
    refused = 0
    for data in changed(json.loads(codec.encode(value, KEY))):
        try:
            found = codec.decode(msgspec.json.encode(data), KEY)
        except CorruptState as error:
            assert error.context["key"] == KEY and KEY in str(error)
            refused += 1
        else:
            assert json.loads(codec.encode(found, KEY)) == data
    assert refused


def test_an_object_is_refused_when_a_field_is_missing(stored: tuple[JsonCodec[Any], Any]) -> None:
    codec, value = stored
    data = json.loads(codec.encode(value, KEY))
    for name, held in list(objects(data)):
        for field in list(held) if isinstance(held, dict) and name not in MAPS else ():
            kept = dict(held)
            del held[field]
            with pytest.raises(CorruptState, match=KEY):
                codec.decode(json.dumps(data).encode(), KEY)
            held.clear()
            held.update(kept)


@pytest.mark.parametrize(
    "content", ["", "null", "[]", "{", '"x"', DEEP, '{"key": ' + DEEP, '{"x": 1' + "0" * 5_000 + "}"]
)
def test_an_object_is_refused_by_name_when_its_bytes_are_none(stored: tuple[JsonCodec[Any], Any], content: str) -> None:
    with pytest.raises(CorruptState, match=KEY):
        stored[0].decode(content.encode(), KEY)


def test_an_object_is_refused_when_its_text_is_no_unicode(stored: tuple[JsonCodec[Any], Any]) -> None:
    codec, value = stored
    content = codec.encode(value, KEY).replace(b'"M', b'"\xff').replace(b'"n"', b'"\xff"').replace(b'"f"', b'"\xff"')
    with pytest.raises(CorruptState, match=KEY):
        codec.decode(content, KEY)


def test_an_object_is_refused_when_it_is_that_of_another_place(stored: tuple[JsonCodec[Any], Any]) -> None:
    codec, value = stored
    with pytest.raises(CorruptState, match="changed their places"):
        codec.decode(codec.encode(value, "elsewhere"), KEY)


def test_a_newer_format_is_refused_whatever_is_in_it_and_its_writer_is_known(
    stored: tuple[JsonCodec[Any], Any],
) -> None:
    content = json.dumps({"key": KEY, "format": 9, "nonce": "n", "more": {"deeper": []}}).encode()
    with pytest.raises(NewerFormat, match=f"{KEY} has format 9, this Tidemill reads 1; use a newer one"):
        stored[0].decode(content, KEY)
    assert stored[0].read_nonce(content, KEY) == "n"


def test_an_object_with_a_checksum_is_refused_when_any_bit_of_it_is_another() -> None:
    codec, value = STORED["options"]
    content = codec.sealed(value, KEY)
    assert codec.decode(content, KEY) == value
    assert codec.sealed(codec.decode(content, KEY), KEY) == content
    assert list(json.loads(content))[:3] == ["key", "format", "checksum"]
    for bit in range(8 * len(content)):
        spoiled = bytearray(content)
        spoiled[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptState, NewerFormat), match=KEY):
            codec.decode(bytes(spoiled), KEY)


def test_an_object_is_refused_when_it_has_the_checksum_of_another_one(stored: tuple[JsonCodec[Any], Any]) -> None:
    codec, value = stored
    content = codec.sealed(value, KEY)
    own, other = (json.loads(each)["checksum"].encode() for each in (content, STORED["switch"][0].sealed(OTHER, KEY)))
    with pytest.raises(CorruptState, match="another checksum"):
        codec.decode(content.replace(own, other, 1), KEY)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(STORED)), st.data())
def test_changed_bytes_give_what_would_be_written_or_a_refusal(name: str, data: st.DataObject) -> None:
    codec, value = STORED[name]
    content = bytearray(codec.encode(value, KEY))
    for _ in range(data.draw(st.integers(1, 3))):
        at, gone = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 3))
        content[at : at + gone] = data.draw(st.binary(max_size=2) | st.sampled_from([b"9" * 30, b"[[", b"-", b"null"]))
    try:
        found = codec.decode(bytes(content), KEY)
    except CorruptState as error:
        assert error.context["key"] == KEY
    else:
        assert json.loads(codec.encode(found, KEY)) == json.loads(bytes(content))


def test_an_object_that_a_person_formatted_is_read() -> None:
    for codec, value in STORED.values():
        content = json.dumps(json.loads(codec.encode(value, KEY)), indent=2, sort_keys=True).encode()
        assert codec.decode(content, KEY) == value


@dataclass(frozen=True)
class Two(Stored):
    a: int
    b: str = "default"


def test_a_default_does_not_stand_in_for_a_field_that_is_missing() -> None:
    codec: JsonCodec[Two] = JsonCodec(Two)
    assert codec.decode(b'{"key":"k","format":1,"a":1,"b":"default"}', "k") == Two(1)
    with pytest.raises(CorruptState, match="k: this object cannot be read: .*a Two without b"):
        codec.decode(b'{"key":"k","format":1,"a":1}', "k")


def test_a_definition_is_refused_when_an_object_is_called_otherwise_inside() -> None:
    """Each map of named objects in turn, those that are retired included."""
    content = stored_json.JSON.encode(DEFINITION, KEY)
    renamed = 0
    for map_name in ("depots", "topologies", "pstates"):
        for number in range(sum(name == map_name for name, _ in named_maps(json.loads(content)))):
            data = json.loads(content)
            held = [found for name, found in named_maps(data) if name == map_name][number]
            held["other"] = held.pop(next(iter(held)))
            with pytest.raises(CorruptState, match=rf"{KEY}: .*'other' is called '.*' inside"):
                stored_json.JSON.decode(json.dumps(data).encode(), KEY)
            renamed += 1
    assert renamed == 4


def named_maps(data: Any) -> list[tuple[str, dict[str, Any]]]:
    """The maps of depots, topologies and PStates anywhere in some data, each with its name."""
    found = [(key, held[key]) for _, held in objects(data) if isinstance(held, dict) for key in held]
    return [(key, value) for key, value in found if key in ("depots", "topologies", "pstates")]


@pytest.mark.parametrize("kind", ["definition", "options"])
def test_an_entry_is_refused_when_it_says_another_number_than_its_key(kind: str) -> None:
    store, key = MemoryStore(), f"M/{kind}/{1:020d}.json"
    codec, value = STORED[kind]
    store.create(key, codec.encode(value, key))
    with pytest.raises(CorruptState, match=f"{key}: holds the object M/{kind}/{3:020d}.json"):
        _ = OptionsLog(store, "M").read() if kind == "options" else DefinitionLog(store, "M").newest()


@pytest.mark.parametrize("kind", ["backup", "switch"])
def test_a_flipped_bit_is_told_when_it_is_in_what_a_restore_hangs_on(kind: str) -> None:
    store = MemoryStore()
    if kind == "backup":
        BackupFolder(store).add(BACKUP)
        read: Any = partial(BackupFolder(store).read, BACKUP.id)
    else:
        incarnations.switch(store, Incarnation(1, "f"), "b", 5)
        read = partial(incarnations.current, store)
    read()
    (key,) = [name for name in store.objects if name.endswith(".json")]
    whole = store.objects[key]
    for place in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        store.objects[key] = bytes(damaged)
        with pytest.raises(CorruptState):
            read()
