"""Several people write one text at once."""
