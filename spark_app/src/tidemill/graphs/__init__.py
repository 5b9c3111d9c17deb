"""Task graphs: nodes with channels, through which batches (Polars frames) are pushed from inputs to Datasets.

Knows stores and depots; nothing of modules' dataflow or of PStates.
"""
