"""Orders get the region of their zip code from a service on the network."""
