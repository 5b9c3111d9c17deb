"""Posts on walls, shown to each reader without those that the reader has muted."""
