"""Modules to read and to run."""
