"""Runs a program's supersteps on one thread's tasks: by columns, or row by row with the same results.

Steps are functions of bytes and of immutable parts, so that `local` and `spark` run the same ones. Nothing here knows
where it runs, or writes to the commit log.
"""
