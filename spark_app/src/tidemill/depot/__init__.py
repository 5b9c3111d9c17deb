"""Depots: segments of records in a log, idempotent producers, appends, retention. Knows no topology."""
