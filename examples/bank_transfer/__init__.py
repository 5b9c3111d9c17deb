"""Money moves between accounts: never twice, and never more than there is."""
