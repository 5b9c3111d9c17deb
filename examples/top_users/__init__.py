"""A list of those who spent the most, kept up to date."""
