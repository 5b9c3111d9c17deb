"""Paths: navigators compiled over the nodes of a structure. Needs no store."""
