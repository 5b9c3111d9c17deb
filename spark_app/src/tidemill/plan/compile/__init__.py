"""Turns a declaration without faults into a program."""
