"""Rows of state: parts, sorted tables, merges, compaction. Knows no paths and no attempts."""
