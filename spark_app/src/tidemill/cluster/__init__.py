"""Launching modules in a process: `InProcessCluster`, engines and stores by name. Commands and HTTP are above it."""
