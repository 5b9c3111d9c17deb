"""Leading a topology: a pure machine, and what carries its instructions out."""
