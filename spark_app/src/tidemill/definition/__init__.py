"""What a store says of a module: its definition, its owner, and which changes an update may make."""
