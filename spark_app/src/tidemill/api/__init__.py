"""How a user writes a module: builders that record what was meant as `language.dataflow` data, and run nothing.

Builders are immutable (a `Block` or `Path` may be used twice) and carry the mistakes found while recording as
faults, so that a definition reports all of them at once. The names here are re-exported by `tidemill`.
"""
