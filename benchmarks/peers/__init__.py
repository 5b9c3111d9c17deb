"""Other systems that do the same work, to compare with."""
