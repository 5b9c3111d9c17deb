"""The library of executors: operators on Polars frames whose results depend neither on batching nor on interleaving.

An executor keeps its state in attributes, as frames that are never changed, so that a checkpoint writes only what was
added. Those with a bound on memory move frames into mapped files (`spilling`).
"""
