"""Words, counted, and the most frequent ones."""
