"""A year of flights: the module, its input, the same results computed with Polars, and a demonstration with a kill."""
