"""The only part that speaks to the API server."""
