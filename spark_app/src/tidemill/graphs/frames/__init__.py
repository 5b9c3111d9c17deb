"""Frames: queries as most people write them, with Polars expressions, compiled to the nodes of a task graph.

`frame` is the API, `plans` its tree, `pushdown` moves filters and columns to the inputs, `steps` are what one batch
goes through, `compiling` makes nodes.
"""
