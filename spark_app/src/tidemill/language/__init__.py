"""The words of a module: schemas, dataflow nodes, operations, combiners, options.

Data only: nothing here reads or runs.
"""
