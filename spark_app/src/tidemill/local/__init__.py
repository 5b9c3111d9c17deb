"""Runs attempts and compactions in the calling process. It knows the steps; the commit log is written by `leader`."""
