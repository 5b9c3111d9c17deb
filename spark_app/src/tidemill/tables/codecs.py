"""How keys and values stand in columns, and whether a value fits its schema.

Keys: int, float, bool, str, bytes and datetime are native columns; `object` keys are bytes that sort like the keys.
Values: native columns for those leaf types, MessagePack for everything else. Checking a value also brings it into
the form in which it would come back from a store (lists for tuples, UTC datetimes, floats for ints where the schema
says float), so that what a topology reads does not depend on whether it was written a moment or a microbatch ago.
"""

from __future__ import annotations

import datetime as _datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import polars as pl

from tidemill.language.schema import FixedKeysSchema, Leaf, ListSchema, MapSchema, Schema, SetSchema, to_text
from tidemill.tables.object_keys import decode_object_key, encode_object_key
from tidemill.values.columns import DATETIME, Column, to_values
from tidemill.values.data import INT_MAX, INT_MIN, check_data, decode_canonical
from tidemill.values.errors import BadInput, RecordRefused, SchemaMismatch
from tidemill.values.keys import NAN, object_key, plain_key
from tidemill.values.message_pack import pack
from tidemill.values.texts import shortened

UTC = _datetime.UTC
NATIVE: dict[str, Any] = {
    "int": pl.Int64,
    "float": pl.Float64,
    "bool": pl.Boolean,
    "str": pl.String,
    "bytes": pl.Binary,
    "datetime": DATETIME,
}


class Misfit(Exception):
    """A value does not fit; `path` grows on the way out, where it becomes SchemaMismatch."""

    def __init__(self, value: Any, expected: str, path: tuple[Any, ...] = ()) -> None:
        super().__init__(expected)
        self.value, self.expected, self.path = value, expected, path

    def below(self, step: Any) -> Misfit:
        """The same, seen from one step farther out."""
        return Misfit(self.value, self.expected, (step, *self.path))


class NullKey(Misfit):
    """None at the place of a key that is never None; `path` ends with it."""

    def __init__(self, kind: str, path: tuple[Any, ...] = ()) -> None:
        super().__init__(None, f"{kind}, not None", path)
        self.kind = kind

    def below(self, step: Any) -> Misfit:
        return NullKey(self.kind, (step, *self.path))


def refusal(pstate: str, place: Sequence[Any], misfit: Misfit, what: str = "") -> SchemaMismatch:
    """The error of a value, or of a key, that does not fit; `place` are the keys that lead to it."""
    where = pstate + "".join(f"[{key!r}]" for key in (*place, *misfit.path))
    if isinstance(misfit, NullKey):
        text = (
            f"{where}: None is no key here. A field that a record does not have gives None: leave such rows out with "
            f"keep_true(Expr(Ops.IS_NOT_NULL, …)), or declare the key as PState.nullable({misfit.kind}) if None is one"
        )
    else:
        shown = shortened(repr(misfit.value))
        text = f"{where}: {what}{shown} ({type(misfit.value).__name__}) does not fit, expected {misfit.expected}"
    return SchemaMismatch(text, pstate=pstate, key=tuple(place), value=misfit.value, expected=misfit.expected)


def _checked_part(check: Callable[[Any], Any], value: Any, step: Any) -> Any:
    try:
        return check(value)
    except Misfit as misfit:
        raise misfit.below(step) from None


# --- checks of leaves ------------------------------------------------------------------------------------------------


def check_int(value: Any) -> Any:
    """An int of 64 bits or None, for storage; a bool is refused, a subclass becomes an int. Raises Misfit."""
    if (type(value) is int and INT_MIN <= value <= INT_MAX) or value is None:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX:
        return int(value)
    raise Misfit(value, "int (signed 64 bits)")


def check_float(value: Any) -> Any:
    """A float or None, for storage; an int becomes a float. Raises Misfit, also if it is too large for one."""
    if type(value) is float or value is None:
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise Misfit(value, "float")


def check_bool(value: Any) -> Any:
    """True, False or None, for storage. Raises Misfit."""
    if value is True or value is False or value is None:
        return value
    raise Misfit(value, "bool")


def check_str(value: Any) -> Any:
    """A str that UTF-8 can encode or None, for storage. Raises Misfit."""
    if value is None or (type(value) is str and value.isascii()):
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misfit(value, "str without lone surrogates") from None
        return str(value)
    raise Misfit(value, "str")


def check_bytes(value: Any) -> Any:
    """Bytes or None, for storage; a bytearray becomes bytes. Raises Misfit."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise Misfit(value, "bytes")


def check_datetime(value: Any) -> Any:
    """A datetime in UTC or None, for storage, from one of any time zone. Raises Misfit, also if it has no time zone."""
    if value is None:
        return None
    if isinstance(value, _datetime.datetime) and value.utcoffset() is not None:
        return value if value.tzinfo is UTC else value.astimezone(UTC)
    raise Misfit(value, "datetime with a time zone")


def check_object(value: Any) -> Any:
    """Any data in the form in which it is read back: lists for tuples, datetimes in UTC. Raises Misfit for all else."""
    try:
        return _as_read(value)
    except RecordRefused as error:
        raise Misfit(value, f"object ({error})") from None


def _as_read(value: Any) -> Any:
    """Data in the form in which it is read back: lists for tuples, UTC datetimes."""
    kind = type(value)
    if kind is str or kind is int or kind is float or value is None or kind is bool or kind is bytes:
        if kind is int or kind is str:
            check_data(value)
        return value
    if kind is list or kind is tuple:
        return [_as_read(item) for item in value]
    if kind is dict:
        return {_hashable_as_read(key): _as_read(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return {_hashable_as_read(item) for item in value}
    check_data(value)
    if isinstance(value, _datetime.datetime):
        return value.astimezone(UTC)
    return decode_value(encode_value(value))


def _hashable_as_read(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_hashable_as_read(item) for item in value)
    return frozenset(map(_hashable_as_read, value)) if isinstance(value, frozenset) else _as_read(plain_key(value))


def _check_container(kinds: tuple[type, ...], name: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, kinds):
            raise Misfit(value, name)
        return check_object(value)

    return check


LEAF_CHECKS: dict[str, Callable[[Any], Any]] = {
    "int": check_int,
    "float": check_float,
    "bool": check_bool,
    "str": check_str,
    "bytes": check_bytes,
    "datetime": check_datetime,
    "object": check_object,
    "list": _check_container((list, tuple), "list"),
    "dict": _check_container((dict,), "dict"),
    "set": _check_container((set, frozenset), "set"),
}


def _check_key(kind: str) -> Callable[[Any], Any]:
    """Keys inside values: like leaves, but what they hold must stay hashable."""
    if kind == "object":
        return lambda key: _hashable_as_read(object_key(check_key_data(key)))
    if kind == "float":
        return check_float_key
    return LEAF_CHECKS[kind]


def check_key_data(key: Any) -> Any:
    """A key of type `object` as it is. Raises Misfit if it is no data, or cannot be hashed."""
    try:
        hash(key)
        check_data(key)
    except (RecordRefused, TypeError) as error:
        raise Misfit(key, f"a key that is data and hashable ({error})") from None
    return key


def check_float_key(key: Any) -> Any:
    """NaN and -0.0 each have one form as keys."""
    value = check_float(key)
    if value is None:
        return None
    return value + 0.0 if value == value else NAN


# --- checks of structures --------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def checker(schema: Schema) -> Callable[[Any], Any]:
    """A function that returns the value in stored form, or raises Misfit."""
    if isinstance(schema, Leaf):
        return LEAF_CHECKS[schema.type]
    if isinstance(schema, MapSchema):
        return _map_checker(schema)
    if isinstance(schema, SetSchema):
        return _set_checker(schema)
    if isinstance(schema, ListSchema):
        return _list_checker(schema)
    return _record_checker(schema)


def _map_checker(schema: MapSchema) -> Callable[[Any], Any]:
    check_key, check_value, text = _check_key(schema.key), checker(schema.value), to_text(schema)

    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise Misfit(value, text)
        if None in value and not schema.nullable:
            raise NullKey(schema.key, (None,))
        return {_checked_part(check_key, k, k): _checked_part(check_value, v, k) for k, v in value.items()}

    return check


def _set_checker(schema: SetSchema) -> Callable[[Any], Any]:
    check_element, text = _check_key(schema.element), to_text(schema)

    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (set, frozenset)):
            raise Misfit(value, text)
        if None in value and not schema.nullable:
            raise NullKey(schema.element, (None,))
        return {_checked_part(check_element, item, item) for item in value}

    return check


def _list_checker(schema: ListSchema) -> Callable[[Any], Any]:
    check_element, text = checker(schema.element), to_text(schema)

    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise Misfit(value, text)
        return [_checked_part(check_element, item, index) for index, item in enumerate(value)]

    return check


def _record_checker(schema: FixedKeysSchema) -> Callable[[Any], Any]:
    checks, text = {key: checker(field) for key, field in schema.fields}, to_text(schema)

    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise Misfit(value, text)
        if not value.keys() <= checks.keys():
            extra = next(key for key in value if key not in checks)
            raise Misfit(value, f"{text}, which has no key {extra!r}")
        return {key: _checked_part(checks[key], value[key], key) for key in checks if key in value}

    return check


# --- values in columns -----------------------------------------------------------------------------------------------


encode_value = pack
decode_value = decode_canonical


@dataclass(frozen=True)
class ValueCodec:
    """One value column. `leaf` is the native leaf type, None for MessagePack."""

    schema: Schema
    leaf: str | None
    dtype: Any
    check: Callable[[Any], Any]

    def series(self, values: Sequence[Any]) -> pl.Series:
        """Checked values as a column."""
        if self.leaf is None:
            values = [None if value is None else encode_value(value) for value in values]
        return pl.Series("", values, dtype=self.dtype, strict=True)

    def column_series(self, column: Column) -> pl.Series:
        """A column of unchecked values as a stored column; raises Misfit."""
        if isinstance(column, pl.Series) and self.leaf is not None:
            if column.dtype == self.dtype:
                return column
            if self.leaf == "float" and column.dtype == pl.Int64:
                return column.cast(pl.Float64)
        return self.series([self.check(value) for value in to_values(column)])

    def values(self, series: pl.Series) -> list[Any]:
        """The Python values of a stored column."""
        raw = series.to_list()
        if self.leaf is None:
            return [None if value is None else decode_value(value) for value in raw]
        return [None if v is None else v.replace(tzinfo=UTC) for v in raw] if self.leaf == "datetime" else raw

    def column(self, series: pl.Series) -> Column:
        """A stored column as steps take it: itself if its type is native, else a list of Python values."""
        return series if self.leaf is not None else self.values(series)

    def decode(self, raw: Any) -> Any:
        """One stored value as a Python value."""
        if raw is None or (self.leaf is not None and self.leaf != "datetime"):
            return raw
        return raw.replace(tzinfo=UTC) if self.leaf == "datetime" else decode_value(raw)


@lru_cache(maxsize=4096)
def value_codec(schema: Schema) -> ValueCodec:
    """The codec of a schema: a native column for each leaf type of `NATIVE`, MessagePack for all other values."""
    leaf = schema.type if isinstance(schema, Leaf) and schema.type in NATIVE else None
    return ValueCodec(schema, leaf, NATIVE[leaf] if leaf else pl.Binary, checker(schema))


# --- keys in columns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyCodec:
    """One key column. The *stored* form of a key is hashable, stands in the column, and sorts like the key."""

    type: str
    dtype: Any
    check: Callable[[Any], Any]
    """The stored form of a key; raises Misfit."""

    def present(self, stored: Any) -> Any:
        """The key as people see it."""
        if self.type == "object":
            return None if stored is None else decode_object_key(stored)
        if self.type == "datetime" and stored is not None:
            return stored.replace(tzinfo=UTC)
        return stored

    def order(self, stored: Any) -> tuple[Any, ...]:
        """What sorts stored keys in Python as the columns sort them: None first, NaN last."""
        if stored is None:
            return (0,)
        return (1, stored) if stored == stored else (2,)

    def series(self, column: Column) -> pl.Series:
        """A column of unchecked keys in stored form; raises Misfit."""
        if isinstance(column, pl.Series) and column.dtype == self.dtype and self.type != "object":
            return self._floats(column) if self.type == "float" else column
        if isinstance(column, pl.Series) and self.type == "float" and column.dtype == pl.Int64:
            return column.cast(pl.Float64)
        return self.stored_series([self.check(key) for key in to_values(column)])

    def stored_series(self, stored: Sequence[Any]) -> pl.Series:
        """Keys that are in stored form already, as a column."""
        return pl.Series("", stored, dtype=self.dtype, strict=True)

    def values(self, series: pl.Series) -> list[Any]:
        """The keys of a stored column as people see them."""
        raw = series.to_list()
        if self.type == "float":
            return one_nan(raw)
        return [self.present(key) for key in raw] if self.type in ("object", "datetime") else raw

    def column(self, series: pl.Series) -> Column:
        """A stored column as steps take it: itself, or for `object` a list of the keys as people see them."""
        return self.values(series) if self.type == "object" else series

    @staticmethod
    def _floats(column: pl.Series) -> pl.Series:
        return column + 0.0


def one_nan(keys: list[Any]) -> list[Any]:
    """Keys out of a float column, with one NaN object, which dicts find."""
    return [key if key == key else NAN for key in keys]


def _object_key(key: Any) -> Any:
    if key is None:
        return None
    try:
        return encode_object_key(key)
    except BadInput as error:
        raise Misfit(key, f"object ({error})") from None


@lru_cache(maxsize=64)
def key_codec(kind: str) -> KeyCodec:
    """The codec of a type of keys: "int", "float", "bool", "str", "bytes", "datetime" or "object"."""
    if kind == "object":
        return KeyCodec(kind, pl.Binary, _object_key)
    return KeyCodec(kind, NATIVE[kind], check_float_key if kind == "float" else LEAF_CHECKS[kind])
