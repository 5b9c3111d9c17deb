"""Long runs with faults: a module, its traffic, and the comparison of its state with what it must be."""
