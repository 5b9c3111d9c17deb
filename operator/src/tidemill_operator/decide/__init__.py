"""Pure decisions: from what is wanted and what is there to actions. No I/O; time is an argument."""
