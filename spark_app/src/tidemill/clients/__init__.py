"""Handles of depots and PStates, and how a topology stands, in this process."""
