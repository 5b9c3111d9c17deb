"""Runs attempts and compactions on Spark: sessions, stages, and what travels between them.

The only package that imports `pyspark`. It knows the steps; the commit log is written by `leader`.
"""
