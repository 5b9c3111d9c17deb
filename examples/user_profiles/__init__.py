"""People register under names that nobody else has, and edit their profiles."""
