"""Pure builders: what a Module or Topology needs, as Kubernetes objects. No I/O, no clock, no randomness."""
