"""Segments that run row by row, in the order in which rows arrive."""
