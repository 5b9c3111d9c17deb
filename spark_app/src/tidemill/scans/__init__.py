"""PStates and depots as tables of columns, read in batches of bounded size: for Polars, Arrow, SQL and Spark.

Limits: nothing beyond a batch of rows and the parts of the snapshot is held. Filters on the columns by which rows are
found are pushed down to where rows begin and end; the whole filter is applied to what was read.
"""
