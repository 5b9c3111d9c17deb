"""Finds all faults of a declaration, with their places."""
