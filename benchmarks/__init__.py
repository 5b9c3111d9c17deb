"""Measurements: `python -m benchmarks`, each beside its peer in the same run."""
