"""Frames of equal columns, whatever their order in each of them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def in_order(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The frame with its columns in this order, if these are its columns; else as it is."""
    if frame.columns == list(names) or set(frame.columns) != set(names):
        return frame
    return frame.select(names)


def stacked(frames: Sequence[pl.DataFrame], *, rechunk: bool = False) -> pl.DataFrame:
    """The rows of several frames, in the first one's order of columns; types that differ (ints and floats, nulls only)
    are widened. Raises the errors of Polars where the columns differ.
    """
    if len(frames) == 1:
        return frames[0]
    names = frames[0].columns
    return pl.concat([in_order(frame, names) for frame in frames], how="vertical_relaxed", rechunk=rechunk)
