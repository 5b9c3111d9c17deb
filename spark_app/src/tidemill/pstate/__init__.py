"""A task's PStates during an attempt: what is committed, with what the attempt wrote over it."""
