"""A task's PStates: read as they were committed, or in an attempt, which writes its own rows above."""
