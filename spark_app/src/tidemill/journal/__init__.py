"""A topology's own logs: its entries, definitions, options, and who leads. Knows no rows of state."""
