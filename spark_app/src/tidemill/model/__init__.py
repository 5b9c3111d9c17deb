"""What all parts speak of: data types and the rules of values. No I/O, no clock, and nothing from other packages.

Here: errors, values and their order, encoding and routing; schemas; the recorded dataflow, operations and what
aggregators mean; a definition and the changes that an update may make; entries of a commit log and snapshots; options.
"""
