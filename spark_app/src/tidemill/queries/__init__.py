"""Handles of query topologies, whose steps run in the process of whoever asks; they need the module's code there."""
