"""Reconciling: one loop for each object that was woken, always observe, decide, apply."""
