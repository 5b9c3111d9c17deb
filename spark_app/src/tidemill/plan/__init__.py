"""From a declared module to programs: checks that find all faults at once, warnings, and the compiler.

Pure: no I/O, no state, no store. What a program does at run time is in `engine`.
"""
