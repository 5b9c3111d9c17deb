"""PStates: tables of sorted rows in levels of parts, merged on read; paths over them; compaction.

Pure but for the loading of parts. Nothing here knows the dataflow, the commit log or Spark.
"""
