"""Statistics of page renders by minute, hour, day and 30 days."""
