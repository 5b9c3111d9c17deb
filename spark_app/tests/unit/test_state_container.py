"""The container format: what stores hold for ever, so its bytes are compared with committed ones."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from pathlib import Path

import pytest

from tidemill.journal.snapshot import Level, Part, Snapshot, TaskSet
from tidemill.language.schema import FixedKeysSchema, Leaf, MapSchema, SetSchema
from tidemill.pstate.thread_state import PStateInfo, ThreadState
from tidemill.scans import export
from tidemill.tables import compaction
from tidemill.tables.codecs import decode_value, encode_value
from tidemill.tables.container import DELETE, PUT, decode
from tidemill.tables.object_keys import decode_object_key, encode_object_key
from tidemill.tables.part_cache import PartCache
from tidemill.tables.parts import PartLoader
from tidemill.tables.tables import layout_of
from tidemill.tables.view import SnapshotView
from tidemill.values.errors import CorruptState, NewerFormat, SchemaMismatch

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = MapSchema(
    "object",
    FixedKeysSchema((("n", Leaf("int")), ("any", Leaf("object")), ("ids", SetSchema("int", True)))),
    nullable=True,
)
INFO = {"$$p": PStateInfo("$$p", "4", SCHEMA)}


def sample() -> ThreadState:
    view = SnapshotView(Snapshot(), TaskSet(2, 1), PartLoader(lambda name: b""))
    state = ThreadState(INFO, view)
    root = state.root("$$p", 3)
    for key in ("text", 5, 2.5, None, (1, "x"), b"\x00\x01"):
        root.get(key).put("n", None if key is None else 7)
    root.get(5).put("any", {"b": [1, {2}], "a": None})
    root.get(5).get("ids").add(-9)
    return state


def read_all(data: bytes) -> dict[object, object]:
    loader = PartLoader(lambda name: data)
    container = decode(data)
    rows = {f"{pstate}/{table}": meta.rows for (pstate, table), meta in container.meta.items()}
    part = compaction.Part("x", TaskSet(2, 1), rows).sealed(data)
    view = SnapshotView(Snapshot((Level("delta", 1, 1, (part,)),)), TaskSet(2, 1), loader)
    root = ThreadState(INFO, view).root("$$p", 3)
    return {
        key: {name: set(held.elements()) if name == "ids" else held for name, held in node.items()}
        for key, node in root.items()
    }


EXPECTED = {
    None: {"n": None},
    2.5: {"n": 7},
    5: {"n": 7, "any": {"b": [1, {2}], "a": None}, "ids": {-9}},
    "text": {"n": 7},
    b"\x00\x01": {"n": 7},
    (1, "x"): {"n": 7},
}


def test_golden_container_is_still_read() -> None:
    held = read_all((GOLDEN / "state_delta_v1.zip").read_bytes())
    assert held == EXPECTED
    assert list(held) == list(EXPECTED)


def test_golden_run_is_still_read() -> None:
    assert read_all((GOLDEN / "state_run_v1.zip").read_bytes()) == EXPECTED


def test_a_container_is_the_same_bytes_when_the_same_was_written() -> None:
    finished, again = sample().finish(), sample().finish()
    assert finished is not None and again is not None
    assert finished[0] == again[0]


def test_members_are_plain_files_when_anyone_opens_the_zip() -> None:
    finished = sample().finish()
    assert finished is not None
    with zipfile.ZipFile(io.BytesIO(finished[0])) as archive:
        assert archive.namelist() == ["meta.json", "4/0.arrow", "4/0.ids.arrow", "4/0.ids#size.arrow"]
        assert json.loads(archive.read("meta.json"))["tables"]["4/0"]["rows"] == 6
    assert finished[1].rows == {"4/0": 6, "4/0.ids": 1, "4/0.ids#size": 1}


def test_corrupt_when_any_byte_of_a_member_changed() -> None:
    data = (GOLDEN / "state_delta_v1.zip").read_bytes()
    at = data.index(b"ARROW1") + 64
    broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    for bad in (broken, data[: len(data) // 2], b"", b"nonsense"):
        with pytest.raises(CorruptState):
            decode(bad)


def test_newer_format_is_refused_when_the_version_is_greater() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("meta.json", json.dumps({"format_version": 99, "tables": {}, "bounds": {}}))
    with pytest.raises(NewerFormat):
        decode(out.getvalue())


def test_cache_gives_the_same_when_parts_come_from_disk(tmp_path: Path) -> None:
    view = SnapshotView(Snapshot(), TaskSet(1, 0), PartLoader(lambda name: b""))
    info = {"$$m": PStateInfo("$$m", "1", MapSchema("int", Leaf("int")))}
    state = ThreadState(info, view)
    for key in range(20_000):
        state.root("$$m", 0).put(key, key * 2)
    finished = state.finish()
    assert finished is not None
    reads: list[str] = []

    def read(name: str) -> bytes:
        reads.append(name)
        return finished[0]

    part = dataclasses.replace(finished[1], name="some/part.zip")
    snapshot = Snapshot((Level("delta", 1, 1, (part,)),))
    for _ in range(2):
        loader = PartLoader(read, PartCache(tmp_path, "a store"), cached_bytes_min=1)
        held = ThreadState(info, SnapshotView(snapshot, TaskSet(1, 0), loader)).root("$$m", 0)
        assert [held.get(key) for key in (0, 777, 19_999)] == [0, 1554, 39_998]
        assert held.size() == 20_000
    assert reads == ["some/part.zip"]
    (cached,) = tmp_path.glob("*/0.columns")
    cached.write_bytes(b"half a fi")
    loader = PartLoader(read, PartCache(tmp_path, "a store"), cached_bytes_min=1)
    assert ThreadState(info, SnapshotView(snapshot, TaskSet(1, 0), loader)).root("$$m", 0).get(3) == 6
    assert len(reads) == 2


def test_no_part_is_read_when_rows_are_written_unseen() -> None:
    def read(name: str) -> bytes:
        raise AssertionError(f"{name} was read")

    info = {"$$m": PStateInfo("$$m", "1", MapSchema("int", Leaf("int")))}
    below = Level("delta", 1, 1, (Part("d", TaskSet(1, 0), {"1/0": 5}),))
    for levels, kinds in (((below,), [DELETE, PUT]), ((), [PUT])):
        state = ThreadState(info, SnapshotView(Snapshot(levels), TaskSet(1, 0), PartLoader(read)))
        state.delete_points("$$m", "0", 0, [[1]])
        state.put_points("$$m", "0", 0, [[2]], [7])
        content, _ = state.finish() or (b"", None)
        assert decode(content).tables["1", "0"].column("kind").to_pylist() == kinds


def test_export_folds_all_levels_into_plain_tables() -> None:
    finished = sample().finish()
    assert finished is not None
    part = dataclasses.replace(finished[1], name="x")
    snapshot = Snapshot((Level("delta", 1, 1, (part,)),))
    tables = dict(export.export("4", layout_of(SCHEMA), snapshot, PartLoader(lambda name: finished[0])))
    assert tables["0"]["value.n"].to_list() == [None, 7, 7, 7, 7, 7]
    assert tables["0.ids"]["k1"].to_list() == [-9]


@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, -(2**63), 2**53 + 1, 0.5, -2.5, float("inf"), 1e300])
def test_number_keys_keep_their_order_and_value(value: float) -> None:
    assert decode_object_key(encode_object_key(value)) == value
    assert encode_object_key(value) > encode_object_key(float("-inf"))
    assert encode_object_key(value) < encode_object_key(float("nan"))


def test_large_integers_stay_apart_when_their_floats_are_equal() -> None:
    keys = [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1]
    encoded = [encode_object_key(key) for key in keys]
    assert encoded == sorted(encoded) and len(set(encoded)) == len(keys)


def test_values_keep_the_order_of_their_keys() -> None:
    assert list(decode_value(encode_value({"b": 1, "a": {(1, 2): {3}}}))) == ["b", "a"]


def test_a_mismatch_names_pstate_path_value_and_type() -> None:
    root = sample().root("$$p", 1)
    with pytest.raises(SchemaMismatch, match=r"\$\$p\[.*\]\['n'\]: True \(bool\) does not fit, expected int"):
        root.get("a").put("n", True)
    with pytest.raises(SchemaMismatch, match="expected one of the fields 'n', 'any', 'ids'"):
        root.get("a").put("other", 1)
