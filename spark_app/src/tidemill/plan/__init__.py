"""From a declaration to a program: faults, warnings, and the compiled form. Pure."""
